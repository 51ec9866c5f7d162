"""A round as text for a terminal and as a standalone SVG, both from the layout the browser uses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from app.view.explanation import Cues, cues
from app.view.layout import Layout, tidy
from app.view.rounds import CELLS, drawable, has_stop, target_odds
from app.view.text import fitting, visible
from core.rounds.round import ACCEPTED, REJECTED, UNREACHED, Round

__all__ = ["svg_tree", "text_tree", "visible"]

MARKS = {ACCEPTED: "✓", REJECTED: "×", UNREACHED: "·"}
STOP = "◇"  # the target's own token where the walk stopped

# ── text ─────────────────────────────────────────────────────────────────────────────────────────


def text_tree(record: Round) -> str:
    """The tree for a terminal: one node a line with its mark, text, q and p.

    Children stand in the layout's order. The target's token where the walk stopped has a line of
    its own, with the reason why it was not in the draft. No line holds a control character.
    """
    record = drawable(record, 1 << 16)
    marked = cues(record)
    lines = [_headline(record), f"● {visible(record.text(int(record.draft.tokens[0])))}"]
    end = record.verdict.path[-1]
    shows_stop = has_stop(record)
    order = [list(rows) for rows in record.draft.children]
    # An explicit stack: a chain may be deeper than Python's recursion allows.
    stack = [(row, "", False) for row in reversed(order[0])]
    last_of = {0: order[0][-1] if order[0] else None}
    if end == 0 and shows_stop:
        stack.insert(0, (-1, "", True))
    while stack:
        row, indent, _ = stack.pop()
        if row < 0:
            lines.append(f"{indent}└─ {_stop_line(record)}")
            continue
        parent = int(record.draft.parents[row])
        closes = row == last_of[parent] and not (parent == end and shows_stop)
        lines.append(f"{indent}{'└' if closes else '├'}─ {_node_line(record, row, marked)}")
        deeper = indent + ("   " if closes else "│  ")
        last_of[row] = order[row][-1] if order[row] else None
        if row == end and shows_stop:
            stack.append((-1, deeper, True))
        stack.extend((child, deeper, False) for child in reversed(order[row]))
    return "\n".join(lines)


def _headline(record: Round) -> str:
    nodes = record.draft.nodes
    drafted = f"{nodes} node{'' if nodes == 1 else 's'} drafted"
    milliseconds = f"{record.times.total * 1e3:.0f} ms"
    return f"round {record.number} · {drafted} · {record.accepted} accepted + 1 · {milliseconds}"


def _node_line(record: Round, row: int, marked: Cues) -> str:
    q = math.exp(min(0.0, float(record.draft.log_q[row])))
    line = f"{MARKS[record.status[row]]} {visible(record.text(int(record.draft.tokens[row])))}"
    line += f"  q {percent(q)}"
    if record.target_probs is not None:
        line += f"  p {percent(math.exp(min(0.0, float(record.target_probs.log_p[row]))))}"
    return f"{line}  {marked.marks[row]}" if marked.told(row) else line


def _stop_line(record: Round) -> str:
    token = visible(record.text(record.verdict.bonus))
    return f"{STOP} {token}  target's token, {record.stop_reason}"


def percent(odds: float) -> str:
    """Short and of even width where it matters: 87 %, 4.2 %, <0.1 %; 0 % is none at all."""
    if math.isnan(odds):
        return "–"
    if 0 < odds < 0.001:
        return "<0.1%"
    return f"{odds * 100:.1f}%" if 0 < odds < 0.0995 else f"{odds * 100:.0f}%"


# ── SVG ──────────────────────────────────────────────────────────────────────────────────────────

# The browser draws the same boxes: app/web/tree.js.
BOX_W, BOX_H, STEP_X, STEP_Y, MARGIN = 116, 40, 160, 46, 20
BAR = 45  # width of a bar for probability 1


@dataclass(frozen=True)
class Palette:
    """Colours of one background. Every meaning has a second sign, so they may also be ignored."""

    ground: str
    ink: str
    soft: str
    box: str
    accepted: str
    accepted_box: str
    rejected: str
    ghost: str


LIGHT = Palette(
    "#fbfaf7", "#1d2430", "#667085", "#ffffff", "#0b6bab", "#e3f0fa", "#b3541e", "#8a3f86"
)
DARK = Palette(
    "#14171d", "#e8eaef", "#98a1b0", "#1d222b", "#5db2ee", "#17324a", "#ef9a5f", "#d991d4"
)


def svg_tree(record: Round, dark: bool = False) -> str:
    """The whole tree as a standalone SVG file; all model text is escaped character data."""
    record = drawable(record)
    end = record.verdict.path[-1]
    layout = tidy(record.draft, record.verdict.path, has_stop(record))
    colours = DARK if dark else LIGHT
    deepest = float(layout.x.max())
    if layout.ghost is not None:
        deepest = max(deepest, float(layout.x[end]) + 1)
    width = round(deepest * STEP_X + BOX_W + 2 * MARGIN)
    height = round(layout.height * STEP_Y + BOX_H + 2 * MARGIN)
    marked, rows = cues(record), range(len(record.draft))
    body = [_edges(record, layout), *(_box(record, layout, r, marked) for r in rows)]
    if layout.ghost is not None:
        body.append(_ghost(record, layout, layout.ghost))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label={quoteattr(_headline(record))}>'
        f"<style>{_style(colours)}</style>"
        f'<rect width="{width}" height="{height}" class="ground"/>' + "".join(body) + "</svg>\n"
    )


def _style(c: Palette) -> str:
    return (
        f".ground{{fill:{c.ground}}}"
        "text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;"
        f"fill:{c.ink};white-space:pre}}.n{{font-size:9px;fill:{c.soft}}}"
        f"rect.b{{fill:{c.box};stroke:{c.soft};stroke-width:1}}"
        f"rect.accepted{{fill:{c.accepted_box};stroke:{c.accepted};stroke-width:2.4}}"
        f"rect.rejected{{stroke:{c.rejected};stroke-width:1.3}}"
        "rect.unreached{stroke-dasharray:1.5 2.5}"
        f"rect.ghost{{fill:none;stroke:{c.ghost};stroke-width:1.6;stroke-dasharray:6 4}}"
        f"path{{fill:none;stroke:{c.soft};stroke-width:1}}"
        f"path.accepted{{stroke:{c.accepted};stroke-width:3}}path.rejected{{stroke:{c.rejected}}}"
        "path.unreached{stroke-dasharray:1.5 3}"
        f"path.ghost{{stroke:{c.ghost};stroke-width:1.6;stroke-dasharray:6 4}}"
        f".q{{fill:none;stroke:{c.ink};stroke-width:.8}}.p{{fill:{c.ink}}}"
    )


def _at(x: float, y: float) -> tuple[float, float]:
    """The top left corner of a box."""
    return MARGIN + x * STEP_X, MARGIN + y * STEP_Y


def _edges(record: Round, layout: Layout) -> str:
    """One path per status: accepted edges last, so that they lie on top."""
    strokes: dict[str, list[str]] = {UNREACHED: [], REJECTED: [], ACCEPTED: []}
    for row, parent in enumerate(record.draft.parents.tolist()):
        if parent >= 0:
            start = _at(float(layout.x[parent]), float(layout.y[parent]))
            stop = _at(float(layout.x[row]), float(layout.y[row]))
            strokes[record.status[row]].append(_curve(start, stop))
    return "".join(f'<path class="{k}" d="{"".join(v)}"/>' for k, v in strokes.items() if v)


def _curve(start: tuple[float, float], stop: tuple[float, float]) -> str:
    x0, y0 = start[0] + BOX_W, start[1] + BOX_H / 2
    x1, y1 = stop[0], stop[1] + BOX_H / 2
    bend = (x1 - x0) / 2
    return f"M{x0:.0f} {y0:.1f}C{x0 + bend:.0f} {y0:.1f} {x1 - bend:.0f} {y1:.1f} {x1:.0f} {y1:.1f}"


def _box(record: Round, layout: Layout, row: int, marked: Cues) -> str:
    x, y = _at(float(layout.x[row]), float(layout.y[row]))
    status = record.status[row]
    label = visible(record.text(int(record.draft.tokens[row])))
    mark = "●" if row == 0 else MARKS[status]
    parts = [
        f'<g transform="translate({x:.0f} {y:.1f})"><title>{_text(label)}</title>',
        f'<rect class="b {status}" width="{BOX_W}" height="{BOX_H}" rx="7"/>',
        f'<text x="8" y="15">{mark} {_text(fitting(label, CELLS))}</text>',
    ]
    if row:
        parts.append(_bar(8, "q", math.exp(min(0.0, float(record.draft.log_q[row])))))
        if record.target_probs is not None:
            p = math.exp(min(0.0, float(record.target_probs.log_p[row])))
            parts.append(_bar(8 + BAR + 6, "p", p))
    if told := marked.told(row):
        mark = f"<title>{_text(told)}</title>{_text(marked.marks[row])}"
        parts.append(f'<text class="n" x="{BOX_W - 3}" y="28" text-anchor="end">{mark}</text>')
    return "".join([*parts, "</g>"])


def _bar(x: int, name: str, odds: float) -> str:
    length = 0.0 if math.isnan(odds) else max(1.0, BAR * odds)
    return (
        f'<text class="n" x="{x}" y="28">{name} {_text(percent(odds))}</text>'
        f'<rect class="{name}" x="{x}" y="32" width="{length:.1f}" height="3.5"/>'
    )


def _ghost(record: Round, layout: Layout, ghost: float) -> str:
    end = record.verdict.path[-1]
    start = _at(float(layout.x[end]), float(layout.y[end]))
    x, y = _at(float(layout.x[end]) + 1, ghost)
    label = visible(record.text(record.verdict.bonus))
    p = target_odds(record, end, record.verdict.bonus)
    return (
        f'<path class="ghost" d="{_curve(start, (x, y))}"/>'
        f'<g transform="translate({x:.0f} {y:.1f})">'
        f"<title>{_text(label)}: {_text(record.stop_reason)}</title>"
        f'<rect class="b ghost" width="{BOX_W}" height="{BOX_H}" rx="{BOX_H / 2:.0f}"/>'
        f'<text x="14" y="15">{STOP} {_text(fitting(label, CELLS - 1))}</text>'
        f"{_bar(14, 'p', p) if p is not None else ''}</g>"
    )


def _text(text: str) -> str:
    """Character data; what XML 1.0 cannot hold at all is already gone through ``visible``."""
    return escape("".join(c if c.isprintable() or c == " " else "�" for c in text))
