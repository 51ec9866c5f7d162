// Pointers on a tree: drag to move, pinch or the wheel to zoom, press to pick.

const STEADY = 4, // pixels a press may move and still pick
  MOST_TURNED = 60, // pixels of the wheel that zoom at once
  LINE = 30; // pixels of a line, where the wheel turns by lines

/** `tree` hears panBy, zoomBy and fit; its `pointing` press, hover and leave. */
export function listenToHands(tree) {
  const { svg, pointing } = tree;
  const fingers = new Map();
  let moved = 0;
  const local = (event) => {
    const box = svg.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  // The wheel alone scrolls the page where that can be scrolled, and zooms, as on a map, where it
  // cannot. A trackpad's pinch arrives as a wheel with Ctrl, in small steps.
  svg.addEventListener(
    "wheel",
    (event) => {
      if (!tree.round) return;
      const unit = event.deltaMode === 1 ? LINE : 1,
        [across, down] = [event.deltaX * unit, event.deltaY * unit],
        isSideways = event.shiftKey || Math.abs(across) > Math.abs(down);
      if (event.ctrlKey || event.metaKey || (!isSideways && !isScrolled(svg))) {
        const turned = Math.max(-MOST_TURNED, Math.min(MOST_TURNED, down));
        tree.zoomBy(Math.exp(-0.008 * turned), local(event));
      } else if (isSideways) tree.panBy(-(across || down), 0);
      else return;
      event.preventDefault();
    },
    { passive: false },
  );
  svg.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    if (fingers.size === 1) moved = 0;
  });
  svg.addEventListener("pointermove", (event) => {
    if (!event.buttons) lift(event); // it was let go outside of the tree
    const last = fingers.get(event.pointerId);
    if (!last) return pointing.hover(event);
    const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
    const now = [event.clientX, event.clientY];
    moved += Math.abs(now[0] - last[0]) + Math.abs(now[1] - last[1]);
    if (moved > STEADY) {
      svg.setPointerCapture(event.pointerId);
      svg.classList.add("dragging");
      pointing.hide();
    }
    if (other) pinch(tree, other, last, now);
    else if (moved > STEADY) {
      const left = tree.panBy(now[0] - last[0], now[1] - last[1]);
      if (event.pointerType === "touch") scroll(svg, -left);
    }
    fingers.set(event.pointerId, now);
  });
  const lift = (event) => {
    fingers.delete(event.pointerId);
    svg.classList.remove("dragging");
  };
  svg.addEventListener("pointerup", lift);
  svg.addEventListener("pointercancel", lift);
  svg.addEventListener("pointerleave", () => pointing.leave());
  svg.addEventListener("click", (event) => moved <= STEADY && pointing.press(event));
  svg.addEventListener("dblclick", () => tree.fit());
}

/** Whether something around the tree can be scrolled; of a page around this one nobody knows. */
function isScrolled(svg) {
  if (window.parent !== window) return true;
  for (let part = svg.parentElement; part; part = part.parentElement) {
    const isPage = part === document.scrollingElement,
      holds = isPage || /auto|scroll/.test(getComputedStyle(part).overflowY);
    if (holds && part.scrollHeight > part.clientHeight + 1) return true;
  }
  return false;
}

/** A finger that the tree does not follow any more moves the page. */
function scroll(svg, down) {
  (svg.closest(".ds-presenting") ?? window).scrollBy(0, down);
}

function pinch(tree, other, last, now) {
  const box = tree.svg.getBoundingClientRect();
  const far = (a) => Math.hypot(a[0] - other[0], a[1] - other[1]) || 1;
  const middle = [(now[0] + other[0]) / 2 - box.left, (now[1] + other[1]) / 2 - box.top];
  tree.zoomBy(far(now) / far(last), middle);
}
