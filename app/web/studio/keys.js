// The keys of Run and Compare.

import { toPrompt } from "../form.js";

/** The act of each key, by the key's name, for a Studio. */
export function actsOf(studio, shift) {
  const { active, guide, panes } = studio,
    { tree } = active,
    node = (by) => tree.round && studio.select(tree.neighbour(by)),
    trees = (act) => () => studio.look.trees(act);
  return {
    ArrowLeft: () => (shift ? node("parent") : guide.step(-1)),
    ArrowRight: () => (shift ? node("child") : guide.step(1)),
    ArrowUp: () => node("up"),
    ArrowDown: () => node("down"),
    Home: () => guide.home(),
    End: () => guide.end(),
    Enter: () => tree.round && active.inspect(active.row ?? tree.neighbour("here")),
    " ": () => studio.player.toggle(),
    f: trees((each) => each.fit()),
    w: trees((each) => each.fitRun()),
    u: () => studio.look.unfold(),
    a: trees((each) => each.frame(false)),
    "+": trees((each) => each.zoomBy(1.3)),
    "=": trees((each) => each.zoomBy(1.3)),
    "-": trees((each) => each.zoomBy(1 / 1.3)),
    d: () => studio.comparing && guide.stepContrast(1),
    D: () => studio.comparing && guide.stepContrast(-1),
    n: () => studio.rounds.step(1),
    N: () => studio.rounds.step(-1),
    o: () => studio.other(),
    t: () => studio.look.toggleTable(),
    e: () => studio.shelf?.open(),
    s: () => active.menu.button.disabled || active.menu.open(),
    i: () => toPrompt(studio.where.stop),
    "/": () => studio.search.box.focus(),
    "?": () => studio.help.showModal(),
    Escape: () => {
      for (const pane of panes) pane.closeInspector();
      studio.rounds.leave();
    },
  };
}
