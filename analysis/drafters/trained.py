"""A drafter's accuracy as its trainer logged it, beside that of serving. Never torch.

A trainer's accuracy by depth is read from a small file: our own ``accuracy.json``, or what
SpecForge and speculators log (``train/acc_0``, ``val/full_acc_1``, ``cond_acc_2`` …) as JSON, JSON
lines or CSV, of which the last value of each counts. Served is the same of traces.

Two numbers go by the name of accuracy. *All places*: the best token was right, whatever the depths
before. *After a right prefix*: the same among the places where all shallower depths were right. The
second is what serving shows at the observed positions whose path is of the drafter's best tokens
alone; a tree observes others too, behind siblings, where a drafter is worse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from msgspec import Meta, Struct

from analysis.frames import Frame, declared
from analysis.measures.acceptance import best_columns, per_depth
from analysis.measures.counts import Counts
from analysis.measures.tables import Tables, grouped
from analysis.numbers import interval, number
from core.declared import BadField, Count, Share, convert, read
from core.errors import UserError
from core.json_input import MAX_BYTES
from core.readers import Say, csv_rows, json_values
from core.stats import FEW_COMPARED, wilson, z_of_several

FORMAT = "draftscope-accuracy"
ALL, AFTER = "all places", "after a right prefix"
COUNTED = "accepted, as counted"  # by an engine: of a chain, after an accepted prefix
AT_LEAST = "accepted, at least"  # the same, where drafts may have been shorter than this depth
MAX_DEPTHS, MAX_TEXTS = 256, 16
UNTOLD = "(over how many is not told)"
LESS = 0.75  # of what was trained: a served accuracy below it has another reason than the text
ByDepth = Annotated[list[Count], Meta(max_length=MAX_DEPTHS)]
_KEY = re.compile(
    r"(?:(?P<text>[A-Za-z][\w ]{0,30})/)?"
    r"(?P<kind>full_acc|cond_acc|acc|accuracy)_(?P<depth>\d{1,3})"
)


@dataclass(frozen=True)
class Curve:
    """Accuracy by depth on one text.

    kind    ALL or AFTER
    values  by depth from 1; NaN: not told
    seen    how many places each is over; None: the trainer does not tell
    """

    text: str
    kind: str
    values: tuple[float, ...]
    seen: tuple[int, ...] | None = None


def read_accuracy(path: Path, cut: Say | None = None) -> list[Curve]:
    """The curves of a file. ``cut`` hears of a last line that was cut off, as of a training that
    goes on. Raises UserError, one sentence, for a file that holds none."""
    try:
        found = _curves(path, cut)
    except BadField as why:
        raise UserError(f"{path}: {why}") from None
    if not found:
        raise UserError(
            f"{path} holds no accuracy by depth: acc_0, full_acc_0, cond_acc_0 … as SpecForge and "
            "speculators log them, or the accuracy.json of our training"
        )
    return found


def _curves(path: Path, cut: Say | None) -> list[Curve]:
    if path.suffix == ".csv":
        return _logged(path, csv_rows(path, MAX_BYTES))
    values = [value for value, _ in json_values(path, cut)]
    if len(values) == 1 and isinstance(values[0], dict) and values[0].get("format") == FORMAT:
        return [curve for text in read(values[0], _Accuracy).texts for curve in text.curves()]
    return _logged(path, values)


class _Text(Struct):
    """How often the best token was right, of how many places, by depth."""

    text: str
    right: list[Count]
    seen: ByDepth
    right_after: list[Count]
    seen_after: ByDepth

    def curves(self) -> Iterator[Curve]:
        """Raises BadField for counts that contradict each other."""
        for kind, right, seen in (
            (ALL, self.right, self.seen),
            (AFTER, self.right_after, self.seen_after),
        ):
            if len(right) != len(seen):
                raise BadField("right and seen do not fit each other")
            if any(r > s for r, s in zip(right, seen, strict=True)):
                raise BadField("right is more than seen")
            values = tuple(r / s if s else np.nan for r, s in zip(right, seen, strict=True))
            yield Curve(self.text[:40], kind, values, tuple(seen))


class _Accuracy(Struct):
    """Our own ``accuracy.json``."""

    texts: Annotated[list[_Text], Meta(max_length=MAX_TEXTS)]


def _logged(path: Path, rows: Iterable[Any]) -> list[Curve]:
    """The last value that was logged of every depth."""
    last: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        if not isinstance(row, dict):
            raise BadField("a line of the log is not an object")
        for key, value in row.items():
            named = _KEY.fullmatch(key) if isinstance(key, str) else None
            if named is None or value in (None, ""):
                continue
            kind = AFTER if named["kind"] == "cond_acc" else ALL
            depths = last.setdefault((named["text"] or "train", kind), {})
            depths[int(named["depth"])] = convert(value, Share, f"{path}: {key}", lax=True)
    if len(last) > MAX_TEXTS or any(max(d) >= MAX_DEPTHS for d in last.values()):
        raise BadField(f"it has more than {MAX_TEXTS} texts or {MAX_DEPTHS} depths")
    return [
        Curve(text, kind, tuple(depths.get(d, np.nan) for d in range(max(depths) + 1)))
        for (text, kind), depths in last.items()
    ]


# ── beside what is served ──────────────────────────────────────────────────────────────────────


@declared("trained_and_served")
def trained_and_served(
    curves: Sequence[Curve],
    tables: Tables | None = None,
    counts: Mapping[str, Counts] | None = None,
) -> pd.DataFrame:
    """Trained accuracy and served acceptance by depth, one line each."""
    rows = [
        {"source": "trained", "text": c.text, "measure": c.kind, "depth": n, "value": value}
        | {"over": c.seen[n - 1] if c.seen else np.nan}
        for c in curves
        for n, value in enumerate(c.values, 1)
        if np.isfinite(value)
    ]
    for name, each in (counts or {}).items():
        rows += _counted(name, each)
    if tables is not None:
        rows += _served(tables)
    frame = pd.DataFrame([{"temperature": np.nan} | row for row in rows])
    if len(frame):
        known = frame["over"].fillna(0).to_numpy()
        frame["low"], frame["high"] = wilson(frame["value"].to_numpy() * known, known)
    return frame


def _served(tables: Tables) -> Iterator[dict[str, Any]]:
    """Lines of traces."""
    found: Frame = per_depth(tables)
    if found.empty:
        return
    by_method = tables.runs.groupby("method", observed=True)["temperature"]
    warm = by_method.max().where(by_method.count() == by_method.size())  # all tell it, or none does
    found = found.merge(_after_right_prefix(tables), "left", ["method", "depth"])
    for row in found.to_dict("records"):
        own = {"source": str(row["method"]), "text": "served", "depth": row["depth"]}
        own |= {"temperature": warm[row["method"]]}
        for measure, column, over in (
            (AFTER, "after", "places"),
            ("accepted", "acceptance", "observed"),
            ("survival", "marginal", "rounds"),
        ):
            if np.isfinite(row[column]):
                yield own | {"measure": measure, "value": row[column], "over": row[over]}


def _after_right_prefix(tables: Tables) -> Frame:
    """How often the best token was right behind a path of best tokens, and how many places."""
    parts = tables.each("positions", ["depth", "spine", "best"])
    spine = (part[part["spine"]] for part in parts)
    frame = grouped(spine, ["method", "depth"], means=["best"]).rename(columns={"size": "observed"})
    best_columns(frame)
    names = {"top1": "after", "observed": "places"}
    return frame.rename(columns=names)[list(names.values())].reset_index()


def _counted(name: str, counts: Counts) -> Iterator[dict[str, Any]]:
    """Lines of an engine's counts. A share that is only a lower bound is left out."""
    own = {"source": name, "text": "served"}
    for each in counts.by_depth:
        if each.depth == 1 or counts.full is not False or counts.exact:
            tested = np.nan if each.tested is None else each.tested
            measure = AT_LEAST if counts.at_most(each) else COUNTED
            shown = own | {"measure": measure, "depth": each.depth}
            yield shown | {"value": each.conditional, "over": tested}
    for each in counts.by_depth:
        rounds = np.nan if counts.rounds is None else counts.rounds
        shown = own | {"measure": "survival", "depth": each.depth}
        yield shown | {"value": each.marginal, "over": rounds}


def sentences(found: Frame) -> list[str]:
    """Say what the difference between trained and served means, for each label of the runs."""
    if found.empty:
        return []
    trained = found[found["source"] == "trained"]
    said = [*_overfit(trained)]
    base = _best_text(trained)
    for label, rows in found[found["source"] != "trained"].groupby("source", sort=False):
        served = rows[rows["measure"].isin((AFTER, COUNTED, AT_LEAST))].set_index("depth")
        said += [f"{label}: {words}" for words in _parts(base, served)]
    return said


def _best_text(trained: Frame) -> Frame:
    """Choose the rows that serving is compared with: held-out text if there is some, and the
    accuracy after a right prefix if it is told. At depth 1 both kinds are one."""
    held = trained[~trained["text"].str.startswith("train")]
    some = held if len(held) else trained
    exact = some[some["measure"] == AFTER]
    first = some[some["depth"] == 1].assign(measure=AFTER)
    chosen = pd.concat([exact, first]) if len(exact) else some
    return chosen.drop_duplicates("depth").set_index("depth")


def _parts(trained: Frame, served: Frame) -> Iterator[str]:
    """Say at which depth the served accuracy first is below the trained one: with 95 % confidence
    over all depths together, where both tell over how many places they are."""
    exact = (trained["measure"] == AFTER).all()
    compared, both = 0, trained.index.intersection(served.index)
    z = z_of_several(len(both) if exact else 1)
    for depth in both:
        if (depth > 1 and not exact) or depth > compared + 1:
            break  # a prefix that is not known to be right says nothing of one that was accepted
        one, other = trained.loc[depth], served.loc[depth]
        if one["over"] < FEW_COMPARED or other["over"] < FEW_COMPARED:
            break
        told = np.isfinite(other["over"])  # an engine may tell shares without counts
        high, low = _sure(other, z)[1], _sure(one, z)[0]
        if high < low if told else other["value"] < LESS * one["value"]:
            yield _below(one, other, depth)
            return
        compared = depth
    if compared:
        known = "" if np.isfinite(served["over"]).all() else f" {UNTOLD}"
        yield (
            f"served is not shown to be below trained up to depth {compared}{known}, as far as "
            "both tell."
        )
    else:
        yield (
            f"too little in common to compare: fewer than {FEW_COMPARED} positions on a side, no "
            "depth 1 that both tell, or traces without the drafter's lists."
        )


def _sure(row: Frame, z: float) -> tuple[float, float]:
    """The bounds of a share; the share itself where it is not told over how many."""
    if not np.isfinite(row["over"]):
        return row["value"], row["value"]
    low, high = wilson(row["value"] * row["over"], row["over"], z)
    return float(low), float(high)


def _below(one: Frame, other: Frame, depth: int) -> str:
    """Say that the served accuracy is below the trained one, and what that suggests."""
    told = np.isfinite(other["over"])
    over = interval(other["low"], other["high"]) if told else UNTOLD
    if told:
        over += f" over {int(other['over'])} positions"
    if (other["high"] if told else other["value"]) >= LESS * one["value"]:
        why = "a part of that may come from text unlike that in training"
    elif depth == 1:
        why = (
            "already the first token is worse: features, positions, labels, template or text may "
            "differ from training; `diagnose` tries the wiring"
        )
    else:
        why = (
            f"up to depth {depth - 1} served is not shown to be below: deeper, decoding reads what "
            "the drafter made itself, but training reads what the text has"
        )
    if other["measure"] == AT_LEAST:
        why += "; or drafts were shorter, which is not told"
    if other["temperature"] != 0:
        known = np.isfinite(other["temperature"])
        rule = f"the temperature {other['temperature']:g} lowers it, too"
        why += f"; {rule if known else 'or it was sampled: its temperature is not told'}"
    return (
        f"served is below trained at depth {depth}: trained {number(one['value'])} "
        f"({one['text']}), served {number(other['value'])} {over}: {why}."
    )


def _overfit(trained: Frame) -> Iterator[str]:
    """Whether text that was held out is much worse at depth 1."""
    first = trained[trained["depth"] == 1].drop_duplicates("text").set_index("text")["value"]
    own = [value for text, value in first.items() if str(text).startswith("train")]
    for text, value in first.items():
        if own and not str(text).startswith("train") and value < LESS * own[0]:
            yield (
                f"the drafter knows its training text by heart: {number(own[0])} at depth 1, but "
                f"{number(value)} on {text}. Train on more text, or pass over it fewer times."
            )
