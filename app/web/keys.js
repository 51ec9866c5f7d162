// Keys that act on what is on view, while nobody types.

const SCROLLS = new Set(["ArrowUp", "ArrowDown", "Home", "End", " "]);

/** Call the act that `actOf(event)` has for a key, as long as the element is on the page, when it
 * is in sight and nothing else takes the key. */
export function onKeys(element, actOf) {
  const onKey = (event) => {
    if (!element.isConnected) return document.removeEventListener("keydown", onKey);
    if (!element.getClientRects().length || event.defaultPrevented || takesKey(event)) return;
    const act = document.querySelector("dialog[open]") ? null : actOf(event);
    if (!act) return;
    event.preventDefault();
    act();
  };
  document.addEventListener("keydown", onKey);
}

/** Whether an element takes the key itself. */
export function takesKey({ target, key, ctrlKey, metaKey, altKey }) {
  if (ctrlKey || metaKey || altKey) return true;
  if (target.matches?.(".ds-inspector-body") && SCROLLS.has(key)) return true;
  const tag = target.tagName;
  if (tag === "INPUT" && target.type === "range")
    return key.startsWith("Arrow") || key === "Home" || key === "End";
  if (tag === "BUTTON" || tag === "SUMMARY") return key === " " || key === "Enter";
  return ["INPUT", "TEXTAREA", "SELECT"].includes(tag);
}
