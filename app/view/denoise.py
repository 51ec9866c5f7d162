"""Denoising runs as plain JSON: what their rounds and headers hold beside those of other runs.

A round has its steps with their whole rankings, and the draft graph in the form that the tree
component draws. Light: numpy only. All token text leaves through ``core.visible``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.numbers import ordinal, plural
from app.view.layout import layered
from app.view.values import LETTERS, finite, finites, probability
from core import ASSETS
from core.diffusion.draft_graph import DraftGraph, Formula, label
from core.diffusion.graph_files import FORMAT, VERSION, graph_from_json
from core.diffusion.request import PLAIN, SPIFFY
from core.errors import UserError
from core.rounds.blocks import MASKED, Block, BlockDraft, Edit, Ranking, Step
from core.rounds.causes import Cause
from core.rounds.round import ACCEPTED, UNREACHED, Round
from core.traces.schema import Header
from core.visible import PIECE, fitting, flowing, visible

CELLS = 7  # monospace cells of a token in a draft's box
WIDE = 13  # … and of the title above its lines
LINES = 6  # edits that a draft's box lists
DENOISER = ASSETS / "models" / "smollm2-135m" / "denoiser"


# ── the run ──────────────────────────────────────────────────────────────────────────────────────


def is_denoising(method: object) -> bool:
    return method in (PLAIN, SPIFFY)


def run_facts(header: Header) -> dict[str, Any]:
    """Return what the page says of a denoising run's settings."""
    graph = graph_of(header.settings)
    return {
        "title": run_title(header.settings),
        "drafts": graph is not None,
        "ahead": _ahead(header.settings),
        "graph": visible(graph.name or "of its own") if graph else "",
        "facts": [visible(fact, 80) for fact in _facts(header)],
    }


def run_title(settings: Mapping[str, Any]) -> str:
    """Plain denoising, or Spiffy with D drafts a call."""
    graph = graph_of(settings)
    return f"Spiffy, D = {len(graph)}" if graph else "Plain denoising"


def graph_of(settings: Mapping[str, Any]) -> DraftGraph | None:
    """The draft graph in a header's settings; None where there is none that can be read."""
    graph = settings.get("graph")
    if not isinstance(graph, dict):
        return None
    try:
        known = {**graph, "format": FORMAT, "version": VERSION}
        return graph_from_json(known, str(graph.get("name") or ""))
    except UserError:
        return None


def _facts(header: Header) -> Iterator[str]:
    settings = header.settings
    yield _pace(settings.get("pace"))
    for name in ("block", "length", "ahead", "temperature", "seed"):
        if name in settings:
            value = settings[name]
            yield f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
    if name := header.model.get("name"):
        yield str(name)
    if graph := graph_of(settings):
        yield f"graph {graph.name or 'of its own'}"


def _ahead(settings: Mapping[str, Any]) -> float:
    """The confidence with which a position was set before the first masked one; 0: any."""
    pace = settings.get("pace")
    threshold = pace.get("threshold") if isinstance(pace, dict) else None
    ahead = settings.get("ahead")
    if not isinstance(ahead, int | float):
        return 0.0
    return min(ahead, threshold) if isinstance(threshold, int | float) else ahead


def _pace(pace: object) -> str:
    """How many positions a step unmasks, in words."""
    pace = pace if isinstance(pace, dict) else {}
    if "threshold" in pace:
        return f"every position of p ≥ {pace['threshold']} a step"
    count = pace.get("tokens", "?")
    return f"{plural(count, 'token') if type(count) is int else f'{count} tokens'} a step"


# ── one call ─────────────────────────────────────────────────────────────────────────────────────


def call_view(record: Round, before: Round | None) -> dict[str, Any]:
    """Return what the page draws of a model call beside what every round has. ``before``: the run's
    round before it."""
    block, earlier = _block(record), before and before.block
    first = earlier is None or earlier.index != block.index
    ids = {t for step in block.steps for t in step.ranking.ids.flatten().tolist()}
    view: dict[str, Any] = {
        "block": block.index,
        "size": len(block.state),
        "step": block.step,
        "steps": [_step_view(record, k) for k in range(len(block.steps))],
        "ranked": {str(t): visible(record.text(t)) for t in sorted(ids)},
    }
    if first:
        known = [p for p, token in enumerate(block.state.tolist()) if token != MASKED]
        view["known"] = [[p, *_piece(record, int(block.state[p]))] for p in known]
    return view | graph_view(record, None if first else last_known(before))


def _step_view(record: Round, k: int) -> dict[str, Any]:
    """Step ``k`` of a call: what it unmasked, its ranking, and the counts up to here."""
    block = _block(record)
    step, calls, plain = block.steps[k], record.number, block.step + k + 1
    ranking = step.ranking
    return {
        "count": step.count,
        "picks": [
            [int(place), *_piece(record, int(token)), finite(float(p))]
            for place, token, p in zip(step.positions, step.tokens, step.confidences, strict=True)
        ],
        "ranking": [
            [int(place), ids, finites(p)]
            for place, ids, p in zip(
                ranking.positions, ranking.ids.tolist(), ranking.p, strict=True
            )
        ],
        "tally": [calls, plain, plain - calls, round(plain / calls, 4)],
    }


def _piece(record: Round, token: int) -> list[str]:
    """A token as a label and as running text."""
    return [visible(record.text(token)), flowing(record.text(token), PIECE)]


def last_known(record: Round | None) -> Ranking | None:
    """The ranking that the next call's drafts are read from, c_ij counted from its first row."""
    if record is None or record.block is None:
        return None
    step = record.block.steps[-1]
    return step.ranking.after(step.count)


def _block(record: Round) -> Block:
    assert record.block is not None, "a denoising run's round has a block"
    return record.block


def _draft(record: Round) -> BlockDraft:
    assert isinstance(record.draft, BlockDraft), "a round with a block has a draft of it"
    return record.draft


def _written(record: Round, step: Step) -> list[str]:
    """Position and token of everything a step set."""
    pairs = zip(step.positions, step.tokens, strict=True)
    return [f"{place} {visible(record.text(int(token)))}" for place, token in pairs]


# ── the draft graph ──────────────────────────────────────────────────────────────────────────────


def graph_view(record: Round, left: Ranking | None) -> dict[str, Any]:
    """A draft graph as the tree component draws it: a box per block state, an edge per pathway.

    ``left`` is the ranking the drafts were read from, if it is known. The node after the path's
    end is the state that the model went on to.
    """
    draft, path, rows = _draft(record), record.verdict.path, range(len(record.draft))
    wrote = _written(record, _block(record).steps[-1])
    view = _graph(draft, [_name(record, row) for row in rows], path)
    view["ghost"] |= {
        "parent": path[-1],
        "label": ", ".join(wrote),
        "short": fitting(wrote[0] + (", …" if len(wrote) > 1 else ""), WIDE),
        "p": None,
        "why": record.stop_reason.words,
    }
    return view | {
        "title": "Draft graph of this call",
        "lines": [_lines(record, edits, left) for edits in draft.edits],
        "q": [probability(float(v)) for v in draft.scores],
        "status": "".join(LETTERS[s] for s in record.status),
        "nodes": [draft_view(record, row, left) for row in rows],
    }


def _graph(draft: BlockDraft, names: Sequence[str], path: Sequence[int] = ()) -> dict[str, Any]:
    """Return the data that draw a graph of block states: to the tree component every row is a token
    of its own. With a ``path`` there is a node after its end."""
    layout = layered(draft, path, ghost=bool(path))
    tight = {row: name.replace(" ", "") for row, name in enumerate(names) if len(name) > WIDE}
    return {
        "word": "level",
        "parents": draft.parents.tolist(),
        "sources": [list(parents) for parents in draft.sources],
        "depths": draft.depths.tolist(),
        "y": [round(v, 2) for v in layout.y.tolist()],
        "ghost": None if layout.ghost is None else {"y": round(layout.ghost, 2)},
        "path": list(path) or [0],
        "tokens": list(range(len(draft))),
        "labels": {str(row): name for row, name in enumerate(names)},
        "short": {str(row): fitting(name, WIDE) for row, name in tight.items()},
        "p": None,
        "tvd": [],
    }


def _name(record: Round, row: int) -> str:
    """A draft by its formula: c₁₁ c₂₁."""
    if row == 0:
        return "the block"
    return visible(label(_formula(_draft(record).edits[row])), 60)


def _lines(record: Round, edits: Sequence[Edit], left: Ranking | None) -> list[list[Any]]:
    """List the lines of a draft's box: [position, token cut to the box, p] of its first edits."""
    return [
        [e.position, fitting(visible(record.text(e.token)), CELLS), _chance(e, left)]
        for e in edits[:LINES]
    ]


def _chance(edit: Edit, left: Ranking | None) -> float | None:
    """p of an edit by the ranking it was read from, where that is known and holds it."""
    i, j = edit.position_rank - 1, edit.token_rank - 1
    if left is None or i >= len(left) or j >= left.ids.shape[1]:
        return None
    named = (int(left.positions[i]), int(left.ids[i, j]))
    return finite(float(left.p[i, j])) if named == (edit.position, edit.token) else None


@dataclass(frozen=True, eq=False)
class CountedGraph:
    """A draft graph on its own. By row: the formula, its name, and in how many calls of a run it
    was accepted and drafted; row 0 is the block."""

    draft: BlockDraft
    formulas: Sequence[Formula]
    names: Sequence[str]
    counts: Sequence[tuple[int, int]]

    @staticmethod
    def of(graph: DraftGraph, rounds: Sequence[Round]) -> CountedGraph:
        draft = graph.outline()
        drafted, accepted = Counter[Formula](), Counter[Formula]()
        for record in rounds:
            for row, edits in enumerate(_draft(record).edits[1:], 1):
                drafted[_formula(edits)] += 1
                accepted[_formula(edits)] += row in record.verdict.path
        formulas = [_formula(edits) for edits in draft.edits]
        names = ["the block", *(visible(label(f), 60) for f in formulas[1:])]
        return CountedGraph(draft, formulas, names, [(accepted[f], drafted[f]) for f in formulas])

    @property
    def status(self) -> list[str]:
        return [ACCEPTED if count else UNREACHED for count, _ in self.counts]

    @property
    def rates(self) -> list[float | None]:
        return [count / of if of else None for count, of in self.counts]


def outline_view(outline: CountedGraph) -> dict[str, Any]:
    """It as the tree component draws it: a box per formula."""
    formulas, counts, names = outline.formulas, outline.counts, outline.names
    status, sources = outline.status, outline.draft.sources
    return _graph(outline.draft, names) | {
        "title": "Draft graph of the run",
        "lines": [_formula_lines(f, *c) for f, c in zip(formulas, counts, strict=True)],
        "q": outline.rates,
        "status": "".join(LETTERS[s] for s in status),
        "nodes": [
            {"row": row, "name": names[row], "level": int(outline.draft.depths[row]),
             "status": status[row], "why": formula_words(formula, *counts[row]), "edits": [],
             "parents": [[p, names[p], status[p]] for p in sources[row]], "chance": None}
            for row, formula in enumerate(formulas)
        ],
    }  # fmt: skip


def _formula(edits: Sequence[Edit]) -> Formula:
    return tuple(sorted((e.position_rank, e.token_rank) for e in edits))


def _formula_lines(formula: Formula, accepted: int, drafted: int) -> list[list[Any]]:
    """List the lines of a formula's box: its (i, j), and how many of its drafts were accepted."""
    shown = [[i, f"j = {j}", None] for i, j in formula[:LINES]]
    return [*shown, ["", f"✓ {accepted} of {drafted}", None]] if drafted and formula else shown


def formula_words(formula: Formula, accepted: int, drafted: int) -> str:
    """Say what a formula sets and what became of it, in sentences."""
    if not formula:
        return "the block before a call, and the ranking that is known of it"
    sets = ", ".join(f"position {i} of the ranking to its {_nth(j)}best token" for i, j in formula)
    return f"sets {sets}. Drafted in {drafted} calls of this run, accepted in {accepted}"


def _nth(number: int) -> str:
    """1: nothing; 2: "2nd "."""
    return "" if number == 1 else f"{ordinal(number)} "


def outline_dot(graph: DraftGraph) -> str:
    """A draft graph's formulas and pathways as DOT source."""
    import graphviz

    outline = graph.outline()
    made = graphviz.Digraph(
        "calibrated graph", graph_attr={"rankdir": "LR"},
        node_attr={"shape": "box", "style": "rounded", "fontname": "monospace"},
    )  # fmt: skip
    for row, edits in enumerate(outline.edits):
        made.node(str(row), label(_formula(edits)) if row else "the block")
        for parent in outline.sources[row]:
            made.edge(str(parent), str(row))
    return made.source


def draft_view(record: Round, row: int, left: Ranking | None) -> dict[str, Any]:
    """Return the inspector's view of a draft: its edits, its pathways, and why it ended."""
    draft, status = _draft(record), record.status
    return {
        "row": row,
        "name": _name(record, row),
        "level": int(draft.depths[row]),
        "status": status[row],
        "why": why_words(record, row),
        "edits": [_edit_view(record, edit, left) for edit in draft.edits[row]],
        "parents": [[p, _name(record, p), status[p]] for p in draft.sources[row]],
        "chance": probability(float(draft.scores[row])) if row else None,
    }


def _edit_view(record: Round, edit: Edit, left: Ranking | None) -> dict[str, Any]:
    """One edit, and what the block holds there after this call."""
    now = int(_block(record).after()[edit.position])
    fate = "masked" if now == MASKED else "same" if now == edit.token else "other"
    return {
        "position": edit.position,
        "label": visible(record.text(edit.token)),
        "name": label([(edit.position_rank, edit.token_rank)]),
        "rank": [edit.position_rank, edit.token_rank],
        "p": _chance(edit, left),
        "fate": fate,
        "wrote": visible(record.text(now)) if fate == "other" else "",
    }


def why_words(record: Round, row: int) -> str:
    """Why a draft was accepted or not, as a sentence around the project's fixed words."""
    if row == 0:
        return "the block as it stood: its distribution decides this call's first step"
    why, path = record.why(row), record.verdict.path
    if why is Cause.ACCEPTED:
        return (
            "accepted: the model's own step led to exactly this state, so its next distribution "
            "was already there, and a model call was saved"
        )
    if why is Cause.UNREACHED:
        return "unreached: none of its parents was accepted, so it is unobserved"
    parent = max((at for at, p in enumerate(path) if p in record.draft.sources[row]), default=0)
    wrote = ", ".join(_written(record, _block(record).steps[parent]))
    if why is Cause.OUTRANKED:
        return f"outranked: from its parent the model went to another draft: {wrote}"
    return f"rejected: from its parent the model's step was {wrote}, {why.words}"
