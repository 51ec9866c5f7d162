"""The base tables: what runs recorded, as DataFrames every measure is computed from. Never torch.

Four tables go from coarse to fine: ``runs``, ``rounds``, ``positions`` (what the target saw along
its own text) and ``nodes`` (what was drafted). The last two are long: a measure reads the columns
it needs part by part (``each``) and adds up what it counts (``grouped``), so that of these two the
largest part is in memory, beside the table of rounds, hindsight, and q of all nodes (about 9 bytes
each).

Observed positions. A round observes depth d when the position's parent was accepted, d = 1 …
accepted + 1, at most L drafted depths. Everything deeper is unobserved and has no line: it is never
counted as rejected. The end of a text changes nothing in that: the target verified the whole
accepted path, so all of it counts, as it does in τ; what the text's end (a stop token, the token
limit) cut off is marked ``in_text`` False, to be left out by ``positions[positions.in_text]``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import pandas as pd

from analysis import labels
from analysis.frames import Frame, declared, declared_columns
from analysis.measures.parts import Name, RecordedPart, RoundsPart, RunFacts
from core.chat import last_message
from core.rounds.draft import Array
from core.traces.schema import STAGES, Trace

STOPPED, LIMITED, INTERRUPTED = "stop token", "token limit", "interrupted"
NOT_TOLD = "not told"  # of a text that ended, and whose trace names no limit
_PROMPT = 80  # characters of a prompt's beginning


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of some runs, by name, whose rounds are in some parts. Each is made when it is
    first read."""

    names: Sequence[str]
    parts: Sequence[RoundsPart]

    @staticmethod
    def of(traces: Trace | Sequence[Trace] | Mapping[str, Trace]) -> Tables:
        """Tables from one trace, several ("run 1", "run 2" …) or several with names."""
        if isinstance(traces, Mapping):
            return Tables(list(traces), [RecordedPart(list(traces.values()))])
        some = [traces] if isinstance(traces, Trace) else list(traces)
        return Tables.of({f"run {number}": trace for number, trace in enumerate(some, 1)})

    @cached_property
    def about(self) -> dict[str, RunFacts]:
        """The facts of each run beside its rounds."""
        runs = (run for part in self.parts for run in part.runs)
        return dict(zip(self.names, runs, strict=True))

    def copies(self) -> list[list[str]]:
        """Names of runs with the same header, time of creation included, and the same text: most
        likely a file and its copies."""
        found: dict[tuple[str, bytes], list[str]] = {}
        for name, run in self.about.items():
            if run.header.created and len(run.text):
                found.setdefault((run.header.created, run.text.tobytes()), []).append(name)
        headers = {name: run.header for name, run in self.about.items()}
        alike = ([n for n in names if headers[n] == headers[names[0]]] for names in found.values())
        return [names for names in alike if len(names) > 1]

    @cached_property
    def labels(self) -> dict[str, str]:
        """Each run's label in tables over methods (see ``labels.method_labels``)."""
        return labels.method_labels({name: run.header for name, run in self.about.items()})

    @cached_property
    def prompt_numbers(self) -> Array:
        """int64 [runs]: equal for runs on one prompt, and on turns of one conversation."""
        keys = labels.prompt_keys(run.header for run in self.about.values())
        return pd.factorize(np.array(keys, object))[0]

    @cached_property
    def runs(self) -> Frame:
        return _runs(self)

    @cached_property
    def rounds(self) -> Frame:
        return _rounds(self)

    @cached_property
    def rounds_of(self) -> Mapping[str, Array]:
        """The numbers of each run's lines in ``rounds``, where it has any."""
        return self.rounds.groupby("run", observed=True).indices

    @cached_property
    def positions(self) -> Frame:
        return _positions(self)

    @cached_property
    def nodes(self) -> Frame:
        return _nodes(self)

    def each(self, table: Name, names: Sequence[str] | None = None) -> Iterator[Frame]:
        """The columns run, method and ``names`` of a table, part by part; None: all columns."""
        for first, part in zip(self._firsts, self.parts, strict=False):
            frame = part.frame(table, None if names is None else ["run", *names])
            own = self.frame_of_runs(frame["run"].to_numpy() + first)
            yield pd.concat([own, frame.drop(columns="run")], axis=1)

    def whole(self, table: Name, names: Sequence[str] | None = None) -> Frame:
        return pd.concat([*self.each(table, names)], ignore_index=True)

    @cached_property
    def _firsts(self) -> Sequence[int]:
        """The number of each part's first run."""
        return [*accumulate((len(part.runs) for part in self.parts), initial=0)]

    def frame_of_runs(self, numbers: Array) -> Frame:
        """The columns run and method for lines that belong to these runs, by their numbers."""
        return pd.DataFrame(
            {
                column: pd.Categorical.from_codes(codes[numbers], known)
                for column, (codes, known) in self._named.items()
            }
        )

    @cached_property
    def _named(self) -> Mapping[str, tuple[Array, pd.Index]]:
        methods = list(self.labels.values())
        kinds = {method: code for code, method in enumerate(dict.fromkeys(methods))}
        codes = np.array([kinds[method] for method in methods], np.int64)
        numbers = np.arange(len(methods), dtype=np.int64)
        return {
            "run": (numbers, pd.Index(list(self.names), dtype=object)),
            "method": (codes, pd.Index(list(kinds), dtype=object)),
        }

    @cached_property
    def made(self) -> dict[Hashable, Frame]:
        """The tables that ``declared`` keeps."""
        return {}


def grouped(
    parts: Iterable[Frame],
    keys: Sequence[str],
    sums: Sequence[str] = (),
    means: Sequence[str] = (),
    errors: Sequence[str] = (),
) -> Frame:
    """Group lines that come in parts by some columns, and add up what the groups count.

    Gives a line per group: ``size``; of ``sums`` the sums; of ``means`` and ``errors`` the means of
    the known values and their numbers (NAME_count); of ``errors`` also the standard errors of the
    means (NAME_sem), whose squares add up by Chan, Golub and LeVeque's formula for variances.
    """
    keys = list(keys)
    lines: Frame = pd.concat(
        [_sums(part, keys, sums, means, errors) for part in parts], ignore_index=True
    )
    found: Frame = lines.groupby(keys, observed=True).sum()
    for name in (*means, *errors):
        count = found[f"{name}_count"]
        found[name] = found.pop(f"{name}_sum") / count.where(count > 0)
    for name in errors:
        count = lines[f"{name}_count"]
        mean = lines[keys].merge(found[name].reset_index(), on=keys, how="left")[name]
        apart = (lines[f"{name}_sum"] / count.where(count > 0) - mean) ** 2 * count
        apart = apart.groupby([lines[key] for key in keys], observed=True).sum()
        squares, count = found.pop(f"{name}_squares") + apart, found[f"{name}_count"]
        found[f"{name}_sem"] = np.sqrt(squares / (count - 1).where(count > 1) / count)
    return found


def _sums(
    part: Frame,
    keys: list[str],
    sums: Sequence[str],
    means: Sequence[str],
    errors: Sequence[str],
) -> Frame:
    """The groups of one part, their keys as columns."""
    by, known = part.groupby(keys, observed=True), [*means, *errors]
    frame = by.size().rename("size").to_frame()
    if sums:
        frame[list(sums)] = by[list(sums)].sum()
    if known:
        frame[[f"{name}_sum" for name in known]] = by[known].sum()
        frame[[f"{name}_count" for name in known]] = by[known].count()
    for name in errors:
        squares = by[name].var() * (frame[f"{name}_count"] - 1)
        frame[f"{name}_squares"] = squares.fillna(0.0)
    return frame.reset_index()


# ── the tables ───────────────────────────────────────────────────────────────────────────────────


@declared("runs")
def _runs(tables: Tables) -> pd.DataFrame:
    """One line per run."""
    rounds, runs = tables.rounds, list(tables.about.values())
    by = rounds.groupby("run", observed=False)
    frame = tables.frame_of_runs(np.arange(len(runs), dtype=np.int64))
    headers = [run.header for run in runs]
    frame["text"] = _text([labels.text_key(header) for header in headers])
    frame["prompt"] = _text([last_message(header.prompt_text)[:_PROMPT] for header in headers])
    frame["temperature"] = [labels.temperature(header) for header in headers]
    frame["seed"] = [labels.sampling(header).seed for header in headers]
    frame["ended"] = _text(list(map(_ended, runs)))
    frame["rounds"] = by.size().to_numpy()
    frame["left_out"] = [run.rounds for run in runs] - frame["rounds"]
    none = (frame["rounds"] == 0) & (frame["left_out"] > 0)  # nor is its first token counted
    frame["tokens"] = np.where(none, 0, [run.tokens for run in runs])
    for name in ("committed", "accepted"):
        frame[name] = by[name].sum().to_numpy()
    frame["cut"] = frame["accepted"] + frame["rounds"] - frame["committed"]
    count = frame["rounds"].where(frame["rounds"] > 0)
    frame["tau"] = (frame["accepted"] + count) / count
    frame["wall_seconds"] = [run.wall_seconds for run in runs]
    frame["tokens_per_second"] = frame["tokens"] / frame["wall_seconds"]
    paced = timed(rounds, "run")
    for name in ("timed", "stage_seconds", "round_pace"):
        frame[name] = paced[name].to_numpy()
    numbers = ("seed", "rounds", "left_out", "tokens", "timed")
    return frame.astype({"temperature": float} | dict.fromkeys(numbers, int))


def timed(rounds: Frame, by: str) -> Frame:
    """The pace of rounds, a line per run or method: ``timed``, how many had their stages timed,
    ``stage_seconds`` of those, NaN of none, and ``round_pace``, tokens that they committed per
    second.
    """
    seconds: Frame = rounds[list(STAGES)].sum(axis=1)
    known = seconds > 0
    own = {"timed": known, "stage_seconds": seconds, "tokens": rounds["committed"].where(known, 0)}
    frame: Frame = pd.DataFrame(own).groupby(rounds[by], observed=False).sum()
    tokens, spent = frame.pop("tokens"), frame["stage_seconds"].where(frame["timed"] > 0)
    return frame.assign(stage_seconds=spent, round_pace=tokens / spent)


def _ended(run: RunFacts) -> str:
    if not run.complete:
        return INTERRUPTED
    limit = labels.token_limit(run.header)
    return NOT_TOLD if limit is None else LIMITED if run.tokens == limit else STOPPED


@declared("rounds")
def _rounds(tables: Tables) -> pd.DataFrame:
    """One line per round that committed tokens with a tree, or with nothing drafted."""
    return tables.whole("rounds")


@declared("positions")
def _positions(tables: Tables) -> pd.DataFrame:
    """One line per observed position of a round (its parent was accepted), never more."""
    return tables.whole("positions", list(declared_columns("positions"))[2:])


@declared("nodes")
def _nodes(tables: Tables) -> pd.DataFrame:
    """One line per drafted node, without roots and rows that are never accepted."""
    return tables.whole("nodes")


def _text(values: list[str]) -> pd.Series:
    return pd.Series(values, dtype=object)
