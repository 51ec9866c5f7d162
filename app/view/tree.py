"""A round as text for a terminal and as a standalone SVG, both with the layout the browser uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from analysis.charts.palette import PALETTES
from analysis.numbers import duration, percent, plural
from app.view.explanation import Explainer, Marks
from app.view.fold import Chip, fold, whole
from app.view.rounds import CELLS, PLAIN, drawable, has_stop, node_text, target_probability
from app.view.values import finite
from core.rounds.node import Nodes
from core.rounds.round import ACCEPTED, REJECTED, SIDE, UNREACHED, Round
from core.visible import fitting, visible

SIGNS = {ACCEPTED: "✓", REJECTED: "×", UNREACHED: "·", SIDE: "○"}
STOP = "◇"  # the target's own token where the walk stopped

# ── text ─────────────────────────────────────────────────────────────────────────────────────────


def text_tree(record: Round, explainer: Explainer = PLAIN) -> str:
    """The tree for a terminal: one node a line with its sign, text, q and p.

    The target's token where the walk stopped has a line of its own, with the reason why it was not
    in the draft. A node with several parents is below the first. No line holds a control
    character.
    """
    record = drawable(record)
    marks, nodes = explainer.marks(record), record.nodes()
    below: list[list[int | None]] = [[] for _ in range(len(record.draft))]
    for row, parent in enumerate(record.draft.parents.tolist()):
        if parent >= 0:
            below[parent].append(row)
    if has_stop(record):
        below[record.verdict.path[-1]].append(None)
    lines = [_headline(record), f"● {node_text(record, 0)}"]
    # An explicit stack: a chain may be deeper than Python's recursion allows.
    stack = [(row, "", row == below[0][-1]) for row in reversed(below[0])]  # None: the stop
    while stack:
        row, indent, last = stack.pop()
        line = _stop_line(record) if row is None else _node_line(record, row, nodes, marks)
        lines.append(f"{indent}{'└' if last else '├'}─ {line}")
        deeper = indent + ("   " if last else "│  ")
        rows = below[row] if row is not None else []
        stack.extend((child, deeper, child == rows[-1]) for child in reversed(rows))
    return "\n".join(lines)


def _headline(record: Round) -> str:
    drafted = f"{plural(record.draft.nodes, 'node')} drafted"
    took = duration(record.times.total)
    return f"round {record.number} · {drafted} · {record.accepted} accepted + 1 · {took}"


def _node_line(record: Round, row: int, nodes: Nodes, marks: Marks) -> str:
    line = f"{SIGNS[record.status[row]]} {node_text(record, row)}  q {_percent(nodes.q[row])}"
    if record.target_probs is not None:
        line += f"  p {_percent(nodes.p[row])}"
    sign, _ = marks.at(row)
    return f"{line}  {sign}" if sign else line


def _stop_line(record: Round) -> str:
    token = visible(record.text(record.verdict.bonus))
    return f"{STOP} {token}  target's token, {record.stop_reason.words}"


def _percent(chance: float) -> str:
    return percent(finite(chance))  # the page rounds so


# ── SVG ──────────────────────────────────────────────────────────────────────────────────────────

# The browser draws the same boxes: app/web/tree/boxes.js.
BOX_W, BOX_H, STEP_X, STEP_Y, MARGIN = 128, 40, 168, 46, 20
Point = tuple[float, float]
BAR = 50  # width of a bar for probability 1


def svg_tree(
    record: Round,
    explainer: Explainer = PLAIN,
    dark: bool = False,
    opened: Sequence[int] | None = None,
) -> str:
    """The tree as a standalone SVG file; all model text is escaped character data.

    ``opened``: it is folded but for the children of these rows (``app.view.fold``); None: whole.
    """
    record = drawable(record)
    end = record.verdict.path[-1]
    drawn = whole(record) if opened is None else fold(record, opened)
    depths, marks, nodes = record.draft.depths, explainer.marks(record), record.nodes()
    heights = zip(drawn.rows, drawn.y.tolist(), strict=True)
    places = {row: _at(float(depths[row]), y) for row, y in heights}
    body = [_edges(record, places)]
    body += [_box(record, places[row], row, nodes, marks) for row in drawn.rows]
    body += [_chip(record, places[chip.parent], chip) for chip in drawn.chips]
    if drawn.ghost is not None:
        body.append(_ghost(record, places[end], _at(float(depths[end]) + 1, drawn.ghost)))
    beyond = [chip.parent for chip in drawn.chips] + ([] if drawn.ghost is None else [end])
    deepest = max(
        *(int(depths[row]) for row in drawn.rows), *(int(depths[r]) + 1 for r in beyond), 0
    )
    width = round(deepest * STEP_X + BOX_W + 2 * MARGIN)
    height = round(drawn.height * STEP_Y + BOX_H + 2 * MARGIN)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label={quoteattr(_headline(record))}>'
        f"<style>{_style(PALETTES['dark' if dark else 'light'])}</style>"
        f'<rect width="{width}" height="{height}" class="ground"/>' + "".join(body) + "</svg>\n"
    )


def _style(c: Mapping[str, str]) -> str:
    return (
        f".ground{{fill:{c['ground']}}}"
        "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;"
        f"fill:{c['ink']};white-space:pre}}.n{{font-size:10px;fill:{c['soft']}}}"
        f"rect.b{{fill:{c['card']};stroke:{c['soft']};stroke-width:1}}"
        f"rect.accepted{{fill:{c['accepted-box']};stroke:{c['accepted']};stroke-width:2.4}}"
        f"rect.rejected{{stroke:{c['rejected']};stroke-width:1.3}}"
        "rect.unreached{stroke-dasharray:1.5 2.5}rect.side{stroke-dasharray:1 4}"
        f"rect.ghost{{fill:none;stroke:{c['ghost']};stroke-width:1.6;stroke-dasharray:6 4}}"
        f"path{{fill:none;stroke:{c['soft']};stroke-width:1}}"
        f"path.accepted{{stroke:{c['accepted']};stroke-width:3}}path.rejected{{stroke:{c['rejected']}}}"
        "path.unreached{stroke-dasharray:1.5 3}path.side{stroke-dasharray:1 4}"
        f"path.ghost{{stroke:{c['ghost']};stroke-width:1.6;stroke-dasharray:6 4}}"
        f".c{{font-size:11px;fill:{c['soft']}}}"
        f".q{{fill:none;stroke:{c['ink']};stroke-width:.8}}.p{{fill:{c['ink']}}}"
    )


def _at(x: float, y: float) -> Point:
    """The top left corner of a box."""
    return MARGIN + x * STEP_X, MARGIN + y * STEP_Y


def _edges(record: Round, places: Mapping[int, Point]) -> str:
    """One path per status: accepted edges last, so that they lie on top."""
    strokes: dict[str, list[str]] = {status: [] for status in reversed(SIGNS)}
    walked = set(record.verdict.path)
    for row, place in places.items():
        for parent in record.draft.sources[row]:
            off_path = row in walked and parent not in walked
            status = UNREACHED if off_path else record.status[row]
            strokes[status].append(_curve(places[parent], place))
    return "".join(f'<path class="{k}" d="{"".join(v)}"/>' for k, v in strokes.items() if v)


def _curve(start: Point, stop: Point) -> str:
    x0, y0 = start[0] + BOX_W, start[1] + BOX_H / 2
    x1, y1 = stop[0], stop[1] + BOX_H / 2
    bend = (x1 - x0) / 2
    return f"M{x0:.0f} {y0:.1f}C{x0 + bend:.0f} {y0:.1f} {x1 - bend:.0f} {y1:.1f} {x1:.0f} {y1:.1f}"


def _box(record: Round, place: Point, row: int, nodes: Nodes, marks: Marks) -> str:
    x, y = place
    status, label = record.status[row], node_text(record, row)
    parts = [
        f'<g transform="translate({x:.0f} {y:.1f})"><title>{_text(label)}</title>',
        f'<rect class="b {status}" width="{BOX_W}" height="{BOX_H}" rx="7"/>',
        f'<text x="8" y="16">{SIGNS[status] if row else "●"} {_text(fitting(label, CELLS))}</text>',
    ]
    if row:
        parts.append(_bar(8, "q", finite(nodes.q[row])))
        if record.target_probs is not None:
            parts.append(_bar(8 + BAR + 6, "p", finite(nodes.p[row])))
    sign, help = marks.at(row)
    if sign:
        sign = f"<title>{_text(help)}</title>{_text(sign)}"
        parts.append(f'<text class="n" x="{BOX_W - 3}" y="29" text-anchor="end">{sign}</text>')
    return "".join([*parts, "</g>"])


def _bar(x: int, name: str, chance: float | None) -> str:
    length = 0.0 if chance is None else max(1.0, BAR * chance)
    return (
        f'<text class="n" x="{x}" y="29">{name} {_text(percent(chance))}</text>'
        f'<rect class="{name}" x="{x}" y="33" width="{length:.1f}" height="3.5"/>'
    )


def _chip(record: Round, parent: Point, chip: Chip) -> str:
    """The children that are not drawn: how many, how they ended, and their share of q and p."""
    x, y = _at(float(record.draft.depths[chip.parent]) + 1, chip.y)
    kind = record.status[chip.children[0]]
    q, p = chip.mass(record)
    return (
        f'<path class="{kind}" d="{_curve(parent, (x, y))}"/>'
        f'<g transform="translate({x:.0f} {y:.1f})"><title>{plural(chip.nodes, "node")}</title>'
        f'<text class="c" x="4" y="18">{_text(chip.words(record))}</text>'
        f'<text class="n" x="4" y="30">Σq {_text(percent(q))}  Σp {_text(percent(p))}</text></g>'
    )


def _ghost(record: Round, parent: Point, place: Point) -> str:
    end = record.verdict.path[-1]
    x, y = place
    label = visible(record.text(record.verdict.bonus))
    p = target_probability(record, end, record.verdict.bonus)
    return (
        f'<path class="ghost" d="{_curve(parent, place)}"/>'
        f'<g transform="translate({x:.0f} {y:.1f})">'
        f"<title>{_text(label)}: {_text(record.stop_reason.words)}</title>"
        f'<rect class="b ghost" width="{BOX_W}" height="{BOX_H}" rx="{BOX_H / 2:.0f}"/>'
        f'<text x="14" y="16">{STOP} {_text(fitting(label, CELLS - 1))}</text>'
        f"{_bar(14, 'p', p) if p is not None else ''}</g>"
    )


def _text(text: str) -> str:
    """Character data; what XML 1.0 cannot hold at all is already gone through ``visible``."""
    return escape("".join(c if c.isprintable() or c == " " else "�" for c in text))
