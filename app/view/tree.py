"""A round as text for a terminal."""

from __future__ import annotations

from analysis.numbers import duration, percent, plural
from app.view.explanation import Explainer, Marks
from app.view.rounds import PLAIN, drawable, has_stop, node_text
from app.view.values import finite
from core.rounds.node import Nodes
from core.rounds.round import ACCEPTED, REJECTED, SIDE, UNREACHED, Round
from core.visible import visible

SIGNS = {ACCEPTED: "✓", REJECTED: "×", UNREACHED: "·", SIDE: "○"}
STOP = "◇"  # the target's own token where the walk stopped


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
    lines = [headline(record), f"● {node_text(record, 0)}"]
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


def headline(record: Round) -> str:
    """Say in a line what a round drafted and what came of it."""
    drafted = f"{plural(record.draft.nodes, 'node')} drafted"
    took = f" · {duration(record.times.recorded)}" if record.times.recorded else ""
    return f"round {record.number} · {drafted} · {record.accepted} accepted + 1{took}"


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
