// The keys of Learn, and the help that lists them.

import { h } from "../dom.js";
import { onKeys } from "../keys.js";
import { dialog, keyList } from "../parts.js";

const KEYS = [
  ["← →", "step before, step after"],
  ["PgUp PgDn", "the same, for clickers; with shift: chapter before, chapter after"],
  ["1 … 9 0", "go to this chapter (0 is the tenth), unless a question is open"],
  ["Home End", "first, last step of the chapter"],
  ["Space", "play, pause"],
  ["p", "present: large type, the whole screen"],
  ["↑ ↓", "node above, node below; shift with ← → for parent and child"],
  ["f", "fit the tree"],
  ["a b c", "answer the question; you may answer again"],
  ["1 … 9", "the same; where a node is asked for, the node of that number"],
  ["Esc", "stop presenting"],
  ["Tab", "from one row of tools to the next; there ← → Home End go along it"],
  ["?", "this help"],
];
const SWIPE = 60; // pixels

export function keyHelp() {
  return dialog("Keys", "", h("h3", "Keys"), keyList(KEYS));
}

/** The act of a key in a lesson; undefined: none. */
export function actOf({ key, shiftKey }, lesson) {
  const step = (by) => () => {
    lesson.pause();
    lesson.move(by);
  };
  const chapter = (at) => () => {
    lesson.pause();
    lesson.go(at, 0);
  };
  const node = (by) => () => lesson.node(by);
  const acts = {
    ArrowLeft: shiftKey ? node("parent") : step(-1),
    ArrowRight: shiftKey ? node("child") : step(1),
    ArrowUp: node("up"),
    ArrowDown: node("down"),
    PageUp: shiftKey ? chapter(lesson.chapter - 1) : step(-1), // clickers send these
    PageDown: shiftKey ? chapter(lesson.chapter + 1) : step(1),
    Home: () => lesson.go(lesson.chapter, 0),
    End: () => lesson.go(lesson.chapter, lesson.length(lesson.chapter) - 1),
    " ": () => lesson.togglePlay(),
    f: () => lesson.fit(),
    "?": () => lesson.dialog.showModal(),
    a: () => lesson.answer(0),
    b: () => lesson.answer(1),
    c: () => lesson.answer(2),
  };
  if (!/^[0-9]$/.test(key)) return acts[key];
  if (lesson.asked) return () => lesson.answer(Number(key) - 1); // no chapter, answered or not
  return chapter((Number(key) || 10) - 1);
}

/** Keys and swipes act on the lesson as long as its element is on the page. */
export function listenToLesson(lesson, element) {
  onKeys(element, (event) => actOf(event, lesson));
  listenForSwipes(lesson.text, (by) => lesson.move(by));
}

/** onSwipe(1) when a finger goes left over the element, (−1) when it goes right. */
function listenForSwipes(element, onSwipe) {
  let x = null;
  const begin = (event) => {
    x = event.touches[0].clientX;
  };
  element.addEventListener("touchstart", begin, { passive: true });
  element.addEventListener("touchend", (event) => {
    const by = x === null ? 0 : event.changedTouches[0].clientX - x;
    if (Math.abs(by) > SWIPE) onSwipe(by < 0 ? 1 : -1);
    x = null;
  });
}
