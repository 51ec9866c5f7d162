// Names at the ends of a figure's lines, in the height that it is drawn with.

const AROUND = 4.5, // lines of the type above and below the plot
  LINE = 1.25, // of the type: a line of a name
  BETWEEN = 0.35; // such a line, between names of several: else two read as one

/** The names of a layout, in a box so many lines of the type high: none touches another, and each
 *  is as near to its line's end as that allows. */
export function namesApart({ annotations = [], yaxis }, lines) {
  if (annotations.length < 2) return annotations;
  const [low, high] = yaxis.range,
    line = (LINE * (high - low)) / Math.max(1, lines - AROUND),
    ends = [...annotations].sort((a, b) => a.y - b.y),
    raised = stacked(ends, line, low, 1);
  return stacked(raised.reverse(), line, high, -1);
}

/** Names one beside another from an edge of the axis on; sign: 1 upward, −1 downward. */
function stacked(names, line, edge, sign) {
  const counts = names.map(({ text }) => text.split("<br>").length),
    between = Math.max(...counts) > 1 ? BETWEEN : 0;
  let end = edge;
  return names.map((name, at) => {
    const half = (line * (counts[at] + between)) / 2,
      y = sign * Math.max(sign * name.y, sign * end + half);
    end = y + sign * half;
    return { ...name, y };
  });
}
