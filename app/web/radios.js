// Gradio's choices of one out of several: it gives every one a name of its own, and the group none.
// With one name they are a group, along which the arrow keys go.

/** Name the groups of choices below an element, now and after each choice. */
export function nameRadios(element) {
  const name = () => {
    for (const group of element.querySelectorAll("fieldset[id]")) {
      const words = group.querySelector("[data-testid='block-info']")?.textContent.trim();
      if (words && !group.hasAttribute("aria-label")) group.setAttribute("aria-label", words);
      for (const radio of group.querySelectorAll("input[type='radio']"))
        if (radio.name !== group.id) radio.name = group.id;
    }
  };
  name();
  const changes = { subtree: true, childList: true, attributes: true, attributeFilter: ["name"] };
  new MutationObserver(name).observe(element, changes); // Gradio names them anew
}
