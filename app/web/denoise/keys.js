// The keys of Denoise.

import { toPrompt } from "../form.js";
import { callEdge } from "./steps.js";

export const KEYS =
  "Space plays · ← → one step · Shift ← → one call · Home End · ↑ ↓ drafts · f fits the graph · " +
  "i to the prompt · e examples · Esc closes";

/** The act of a key for a DenoiseView; undefined: none. */
export function actOf(view, { key, shiftKey }) {
  const { player, graph } = view,
    along = (by) => (shiftKey ? stepCall(view, by) : player.walk(by)),
    drafts = graph.tree.round;
  const acts = {
    " ": () => player.toggle(),
    e: () => view.shelf.open(),
    i: () => toPrompt("ds-d"),
    ArrowLeft: () => along(-1),
    ArrowRight: () => along(1),
    Home: () => player.walk(-view.reach),
    End: () => player.walk(view.reach),
    ...(drafts && {
      ArrowUp: () => view.pick(graph.next(view.row, -1)),
      ArrowDown: () => view.pick(graph.next(view.row, 1)),
      f: () => graph.tree.fit(),
    }),
    ...(view.row !== null && { Escape: () => view.pick(null) }),
  };
  return acts[key];
}

function stepCall({ player, main }, by) {
  const { steps } = main;
  player.pause();
  if (steps.length) player.go(callEdge(steps, Math.min(player.place, steps.length - 1), by));
}
