"""DDTree's saved trees as a trace. Never torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from core.declared import BadField, Count, Size, Whole, convert
from core.errors import UserError
from core.json_input import read_json
from core.rounds.round import Round
from core.traces.record import Recorder
from core.traces.schema import MAX_ROWS


class _Nodes(Struct):
    node_token_ids: Annotated[list[Count], Meta(max_length=MAX_ROWS - 1)]
    parents: list[Whole]


class _Tree(Struct):
    tree: _Nodes
    accepted_indices: Annotated[list[Count], Meta(min_length=1)]


class _Saved(Struct):
    output_ids: list[Count]
    num_input_tokens: Size
    round_trees: list[_Tree]


def write_trees(path: Path, out: Path) -> int:
    """Write the trees that ``ddtree_generate(save_tree_traces=True)`` saved as a trace, without
    log q or lists; returns the number of rounds.

    The file is a JSON object: output_ids (prompt and text), num_input_tokens and round_trees, each
    {"accepted_indices": [0, …], "tree": {"node_token_ids": [N − 1], "parents": [N]}}.

    Raises UserError, one sentence, for anything else.
    """
    raw: _Saved = convert(read_json(path), _Saved, str(path))
    ids, at, rounds = tuple(raw.output_ids), raw.num_input_tokens, raw.round_trees
    if at >= len(ids):
        raise UserError(f"{path}: num_input_tokens leaves no text")
    budget = max((len(each.tree.node_token_ids) for each in rounds), default=0)
    with _whole_or_none(out), Recorder(out, "ddtree (imported)", ids[:at], budget) as record:
        for number, each in enumerate(rounds, 1):
            rows = each.accepted_indices
            drafted = [ids[at] if at < len(ids) else -1, *each.tree.node_token_ids]
            text = ids[at + 1 : at + 1 + len(rows)]
            accepted = [drafted[row] for row in rows[1:] if row < len(drafted)]
            bonus = text[-1] if len(text) == len(rows) else -1  # the text's end cut it off
            try:
                if drafted[0] < 0 or tuple(accepted[: len(text)]) != text[: len(accepted)]:
                    raise BadField(f"what round {number} accepted is not the text")
                record.round(drafted, each.tree.parents, rows, bonus, committed=text, more=_ranked)
            except (BadField, UserError) as why:
                raise UserError(f"{path}: {why}") from None
            at += len(rows)
    return len(rounds)


def _ranked(record: Round) -> Round:
    """Add the nodes' ranks: DDTree drafts siblings in the order of q (Algorithm 1)."""
    ranks = np.zeros(len(record.draft), np.int32)
    for siblings in record.draft.children:
        ranks[list(siblings)] = 1 + np.arange(len(siblings))
    return replace(record, draft=replace(record.draft, ranks=ranks))


@contextmanager
def _whole_or_none(path: Path) -> Iterator[None]:
    """A file that is written here does not stay when its source is refused."""
    try:
        yield
    except UserError:
        path.unlink(missing_ok=True)
        raise
