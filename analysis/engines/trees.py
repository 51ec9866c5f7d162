"""DDTree's saved trees as a trace. Never torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.json_input import read_json
from core.traces.fields import BadField, Fields
from core.traces.record import Recorder
from core.traces.schema import MAX_ROWS


def is_trees(path: Path) -> bool:
    """Whether the file holds DDTree's saved trees and no counts."""
    if path.suffix == ".jsonl":
        return False
    try:
        value = read_json(path)
    except UserError:  # a log, a metrics page, or nothing at all
        return False
    return isinstance(value, Mapping) and "round_trees" in value


def write_trees(path: Path, out: Path) -> int:
    """Write the trees that ``ddtree_generate(save_tree_traces=True)`` saved as a trace, without
    log q or lists; returns the number of rounds.

    The file is a JSON object: output_ids (prompt and text), num_input_tokens and round_trees, each
    {"accepted_indices": [0, …], "tree": {"node_token_ids": [N − 1], "parents": [N]}}.

    Raises UserError, one sentence, for anything else.
    """
    try:
        raw = Fields(read_json(path), "the file")
        ids, at = raw.whole("output_ids", least=0), raw.integer("num_input_tokens", least=1)
        rounds = [_tree(each) for each in raw.entries("round_trees")]
        if at >= len(ids):
            raise BadField("num_input_tokens leaves no text")
    except BadField as why:
        raise UserError(f"{path}: {why}") from None
    budget = max((len(tokens) for tokens, _, _ in rounds), default=0)
    with _whole_or_none(out), Recorder(out, "ddtree (imported)", ids[:at], budget) as record:
        for number, (tokens, parents, rows) in enumerate(rounds, 1):
            drafted = [ids[at] if at < len(ids) else -1, *tokens]
            text = ids[at + 1 : at + 1 + len(rows)]
            accepted = [drafted[row] for row in rows[1:] if row < len(drafted)]
            if drafted[0] < 0 or tuple(accepted[: len(text)]) != text[: len(accepted)]:
                raise UserError(f"{path}: what round {number} accepted is not the text")
            bonus = text[-1] if len(text) == len(rows) else -1  # the text's end cut it off
            record.round(drafted, parents, rows, bonus, committed=text)
            at += len(rows)
    return len(rounds)


@contextmanager
def _whole_or_none(path: Path) -> Iterator[None]:
    """A file that is written here does not stay when its source is refused."""
    try:
        yield
    except UserError:
        path.unlink(missing_ok=True)
        raise


def _tree(value: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Tokens of the nodes, parents with the root's −1 before them, and the accepted rows."""
    raw = Fields(value, "a round's tree")
    tree = raw.object("tree")
    tokens, parents = tree.whole("node_token_ids", least=0), tree.whole("parents")
    if len(tokens) >= MAX_ROWS:
        raise BadField(f"a tree of {len(tokens)} nodes")
    rows = raw.whole("accepted_indices", least=0)
    if rows[:1] != (0,):
        raise BadField("accepted_indices does not begin with the root")
    return tokens, parents, rows
