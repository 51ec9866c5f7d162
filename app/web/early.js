// What is done before the views are made: somebody may write by then, and Gradio's own scripts have
// not run.

import { completed } from "./address.js";
import { watchHands } from "./form.js";

// Gradio 6 never stops the timer of its first "Loading…": it asks for a frame after every frame for
// as long as the page is open, and a laptop never rests. No timer is shown here, so none goes on.
const TIMER = /^\(\)=>\{[\w$]+\([\w$]+,\(performance\.now\(\)-/;

function stopTimers() {
  const request = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (hear) => (TIMER.test(hear) ? 0 : request(hear));
}

function completeAddress() {
  const { hash } = window.location,
    whole = completed(hash);
  if (whole !== hash) window.history.replaceState(window.history.state, "", whole);
}

stopTimers();
watchHands();
completeAddress();
window.addEventListener("popstate", completeAddress); // before the views read it
