"""Rounds and headers as the plain JSON that the tree view draws, live and from a file alike.

A round comes in two parts. Its line is what the page says of every round: the text it added, its
numbers, how many nodes hang beside its path. Its tree takes ten times as long to make, and is
fetched when it is to be drawn: positions, token, q, p and status per node, about 40 KB at 1,024
nodes. What the inspector shows of a node, two top-10 lists among it, is fetched when it opens.
All token text leaves through ``core.visible``; numbers that are not finite leave as null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import numpy as np

from analysis.labels import budget
from analysis.measures.misses import miss, sentence
from app.view.denoise import call_view, is_denoising, run_facts
from app.view.explanation import Explainer
from app.view.fold import Fold, fold, whole
from app.view.values import LETTERS, finite, finites, probability
from core.chat import last_message
from core.methods.registry import shown_title
from core.rounds.blocks import BlockDraft
from core.rounds.causes import ENDS
from core.rounds.draft import Draft
from core.rounds.round import Probe, Round
from core.traces.schema import Header
from core.visible import PIECE, fitting, flowing, visible

GHOST = -1  # in place of a row: the target's token where the walk stopped
DRAWN = 4096  # nodes a view draws; real rounds have at most 1,025
WIDTHS = (1, 4, 16)  # K of the coverage C_K in a row of the table of rounds
CELLS = 12  # monospace cells of a label that fit in a node's box
PLAIN = Explainer()  # knows no method
PREFILL, DRAFTED, BONUS = "p", "a", "b"


# ── the run ──────────────────────────────────────────────────────────────────────────────────────


def header_view(header: Header) -> dict[str, Any]:
    """Return the page's view of a header; the prompt (``last_message``) as running text."""
    settings = {k: v for k, v in header.settings.items() if k != "sampling"}
    sampling = header.settings.get("sampling")
    settings |= sampling if isinstance(sampling, dict) else {}
    own = run_facts(header) if is_denoising(header.method) else {}
    return own | {
        "method": visible(shown_title(header.method)),
        "budget": budget(header),
        "settings": [[visible(str(k)), visible(str(v))] for k, v in settings.items()],
        "model": visible(_model(str(header.model.get("name", ""))), 120),
        "prompt": flowing(last_message(header.prompt_text), 20_000),
        "prompt_tokens": len(header.prompt_ids),
        "causes": {cause.value: cause.short for cause in ENDS},
    }


def _model(name: str) -> str:
    """A model's name; of one in a folder, the folder's."""
    return PurePath(name).name if name.startswith(("/", "~", ".")) else name


# ── one round ────────────────────────────────────────────────────────────────────────────────────


def round_view(record: Round, explainer: Explainer = PLAIN, first: bool = False) -> dict[str, Any]:
    """Everything the page draws of one round: its line and its tree."""
    return round_line(record, first) | tree_view(record, explainer)


def round_line(record: Round, first: bool = False) -> dict[str, Any]:
    """A round in words and numbers, without its tree. ``first``: the run's first text token is its
    root."""
    record = drawable(record)
    draft, path, pieces = record.draft, record.verdict.path, _pieces(record, first)
    parents, depths = draft.parents.tolist(), draft.depths
    if isinstance(draft, Draft) and draft.side:
        depths = np.delete(depths, list(draft.side))
    line: dict[str, Any] = {
        "index": record.index,
        "position": record.position,
        "accepted": record.accepted,
        "drafted": len(draft) - 1,
        "offered": draft.nodes,
        "depth": max(depths.tolist()),
        "path": list(path),
        "beside": [parents.count(row) - (row != path[-1]) for row in path],
        "text": pieces,
        "ids": [_id(record, row) for _, _, row in pieces],
        "times": dict(vars(record.times)),
        "tvd": [] if record.probe is None else finites(record.probe.tvd),
        "coverage": {} if record.probe is None else _coverage(record.probe),
        "cause": record.stop_reason.value,
    }
    if record.faults:
        line["faults"] = list(record.faults)
    if has_stop(record):
        token = record.verdict.bonus
        label, why = visible(record.text(token)), record.stop_reason.words
        line["ghost"] = {"token": token, "label": label, "why": why}
    return line


def tree_view(
    record: Round, explainer: Explainer = PLAIN, before: Round | None = None
) -> dict[str, Any]:
    """The tree of a round as the page draws it, beside the round's line; of a denoising call its
    steps, too. ``before``: the round before it, which a call's drafts were read from."""
    record = drawable(record)
    draft, verdict = record.draft, record.verdict
    layout, folded, marks = whole(record), fold(record), explainer.marks(record)
    nodes = record.nodes()
    labels = {str(t): visible(record.text(t)) for t in sorted(set(draft.tokens.tolist()))}
    short = {token: fitting(label, CELLS) for token, label in labels.items()}
    view: dict[str, Any] = {
        "parents": draft.parents.tolist(),
        "depths": draft.depths.tolist(),
        "y": [round(v, 2) for v in layout.y.tolist()],
        "tokens": draft.tokens.tolist(),
        "labels": labels,
        "short": {token: label for token, label in short.items() if label.endswith("…")},
        "q": finites(nodes.q),
        "p": record.target_probs and finites(nodes.p),
        "status": "".join(LETTERS[s] for s in record.status),
    }
    if fewer := explainer.fewer(record):
        view["fewer"] = fewer
    if marks.signs:
        view |= {"signs": list(marks.signs), "sign_help": dict(marks.help)}
    if folded.chips:
        view["fold"] = _fold_view(record, folded)
    if layout.ghost is not None:
        label = visible(record.text(verdict.bonus))
        view["ghost"] = {
            "parent": verdict.path[-1],
            "token": verdict.bonus,
            "y": round(layout.ghost, 2),
            "label": label,
            "short": fitting(label, CELLS - 1),
            "p": target_probability(record, verdict.path[-1], verdict.bonus),
            "q": drafter_probability(record, verdict.path[-1], verdict.bonus),
            "why": record.stop_reason.words,
        }
    return view if record.block is None else view | call_view(record, before)


def _coverage(probe: Probe) -> dict[str, float | None]:
    """K → p of the drafter's K best tokens at depth 1, for the widths that the page shows."""
    shares = probe.coverage[0].tolist() if len(probe.coverage) else []
    return {str(width): finite(shares[width - 1]) for width in WIDTHS if width <= len(shares)}


def fold_view(record: Round, opened: Sequence[int] = ()) -> dict[str, Any]:
    """Return what is drawn of a round when the chips of the ``opened`` rows are open."""
    record = drawable(record)
    return _fold_view(record, fold(record, opened))


def _fold_view(record: Round, folded: Fold) -> dict[str, Any]:
    return {
        "rows": list(folded.rows),
        "y": [round(v, 2) for v in folded.y.tolist()],
        "ghost": None if folded.ghost is None else round(folded.ghost, 2),
        "chips": [
            {
                "parent": chip.parent,
                "y": round(chip.y, 2),
                "words": chip.words(record),
                "nodes": chip.nodes,
                "status": LETTERS[record.status[chip.children[0]]],
                "q": chip.mass(record)[0],
                "p": chip.mass(record)[1],
            }
            for chip in folded.chips
        ],
    }


def has_stop(record: Round) -> bool:
    """Whether the round says which token the target wanted where the walk stopped."""
    return record.verdict.bonus >= 0


def node_text(record: Round, row: int) -> str:
    """A row's token; in a block draft, the position and token of everything it sets."""
    draft = record.draft
    if not isinstance(draft, BlockDraft):
        return visible(record.text(int(draft.tokens[row])))
    edits = (f"{e.position}: {visible(record.text(e.token))}" for e in draft.edits[row])
    return ", ".join(edits) if row else "the block"


def drawable(record: Round, limit: int = DRAWN) -> Round:
    """The round, or of an absurdly large one its accepted path and first rows."""
    draft, path = record.draft, record.verdict.path
    if len(draft) <= limit or isinstance(draft, BlockDraft):
        return record
    rows = sorted({*path[:limit], *range(max(1, limit - len(path)))})
    verdict, probs = record.verdict, record.target_probs
    kept = tuple(np.searchsorted(rows, path[:limit]).tolist())
    answers = verdict.target_tokens[rows]
    return replace(
        record,
        draft=draft.some(rows),
        verdict=replace(verdict, path=kept, target_tokens=answers),
        target_probs=probs and probs.some(rows),
    )


def _pieces(record: Round, first: bool) -> list[list[Any]]:
    """The text this round added: [running text, how it came, row or GHOST] per token."""
    path = record.verdict.path
    pieces: list[list[Any]] = []
    if record.block is not None:  # in the order of unmasking
        for step, row in zip(record.block.steps, path, strict=True):
            came = [DRAFTED, row] if row else [BONUS, GHOST]
            pieces += ([flowing(record.text(t), PIECE), *came] for t in step.tokens.tolist())
        return pieces
    if first:
        pieces.append([flowing(record.text(int(record.draft.tokens[0])), PIECE), PREFILL, 0])
    for at, token in enumerate(record.committed, 1):
        came = [DRAFTED, path[at]] if at < len(path) else [BONUS, GHOST]
        pieces.append([flowing(record.text(token), PIECE), *came])
    return pieces


def _id(record: Round, row: int) -> int | None:
    """The token of a piece of text; None where the record does not tell."""
    token = record.verdict.bonus if row == GHOST else int(record.draft.tokens[row])
    return token if token >= 0 else None


def why_view(record: Round) -> dict[str, Any]:
    """Why a round ended where it did, as a sentence; "" where there is nothing to say."""
    if record.ends_inside:
        last, depth = _quoted(record, record.committed[-1]), len(record.committed)
        ends = f"the text ends with {last} at depth {depth}"
        return {"why": f"{ends}; the walk went on behind it, which τ counts"}
    found = miss(record)
    if found is None:
        return {"why": ""}
    return {"why": sentence(found, lambda token: _quoted(record, token), record.accepted)}


def _quoted(record: Round, token: int) -> str:
    """A token in a sentence, where a comma or a bracket alone would read as the sentence's."""
    return f"“{visible(record.text(token))}”"


def target_probability(record: Round, row: int, token: int) -> float | None:
    """p of a token after a row, where the record has it."""
    log_p = record.log_p_after(row, token)
    return None if log_p is None else probability(log_p)


def drafter_probability(record: Round, row: int, token: int) -> float | None:
    """q of a token after a row, where the drafter listed it."""
    log_q = record.log_q_after(row, token)
    return None if log_q is None else probability(log_q)
