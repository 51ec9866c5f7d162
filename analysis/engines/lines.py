"""Counts in the logs and metrics pages of engines: one table of forms.

A log may hold any other lines around them. A line that has a form's mark and cannot be read is left
out and named. What an engine rounds is turned into whole counts where only one count fits it.
Every line is hostile: numbers are read by one strict pattern, and nothing of a line is shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from analysis.engines.pages import (
    TENSORRT,
    TENSORRT_NAMES,
    Found,
    Line,
    counters,
    tensorrt_counters,
)
from analysis.engines.rounded import MAX_PLACES, counted, kept_by, rates_of, value_of, whole_of
from analysis.engines.tensorrt import MARK, iteration
from analysis.measures.counts import Served
from analysis.numbers import plural
from core.declared import BadField
from core.errors import UserError, WrongKind, reading
from core.lines import open_regular

MOST_BYTES = 1 << 30
LONGEST = 1 << 16  # characters of a line
MOST_LINES = 1 << 17  # that are counts


@dataclass(frozen=True)
class CountsForm:
    """One form of counts.

    kind  what one record of it is
    mark  which every such line holds
    read  lines with the mark → what they count. Raises BadField for a page that cannot be read
    """

    engine: str
    kind: str
    mark: re.Pattern[str]
    read: Callable[[Sequence[Line]], Found]


def read_lines_of_counts(path: Path) -> tuple[list[Served], str, list[str]]:
    """The records of a log or page, their kind, and sentences about what was left out.

    Raises UserError, one sentence, for one without counts.
    """
    matched: dict[int, list[Line]] = {}
    total, last = 0, (0, "")
    for last in text_lines(path):
        total += 1
        for n in forms_of(last[1]):
            matched.setdefault(n, []).append(last)
            if len(matched[n]) > MOST_LINES:
                raise UserError(f"{path} has more than {MOST_LINES} lines of counts: cut it")
    if not matched:
        raise WrongKind(f"{path} {_UNKNOWN if total else 'is empty'}", path)
    forms = [FORMS[n] for n in sorted(matched)]
    if len({form.engine for form in forms}) > 1:
        names = " and ".join(dict.fromkeys(form.engine for form in forms))
        raise UserError(f"{path} holds counts of {names}: make one file for each")
    form, lines = forms[0], matched[min(matched)]
    try:
        records, notes = form.read(lines)
    except BadField as why:
        raise UserError(f"{path}: {why}") from None
    if not records:
        raise UserError(f"{path}: {notes[0] if notes else 'no draft was verified yet'}")
    if form.kind == "log line":
        notes.insert(0, f"{plural(len(records), form.kind)} of {plural(total, 'line')} read.")
    if lines[-1] == last and not _ends_with_a_break(path):
        notes.append("The last line has no line break: if it was cut off, so are its counts.")
    return records, form.kind, notes


def _ends_with_a_break(path: Path) -> bool:
    with reading(path), open_regular(path) as file:
        file.seek(-2, os.SEEK_END)
        return b"\n" in file.read()


def forms_of(line: str) -> list[int]:
    """The numbers of the forms whose mark a line has."""
    if not _ANY.search(line):
        return []
    return [n for n, form in enumerate(FORMS) if form.mark.search(line)]


def text_lines(path: Path) -> Iterator[Line]:
    """The lines that are not blank, each with its number from 1; what is too long is cut."""
    with reading(path):
        with open_regular(path) as file:
            start = file.read(2)
            if path.stat().st_size > MOST_BYTES:
                raise UserError(f"{path} is larger than {MOST_BYTES >> 20} MB: cut it")
        wide = start in (b"\xff\xfe", b"\xfe\xff")  # as Windows' shells write it
        encoding = "utf-16" if wide else "utf-8-sig"
        with path.open(encoding=encoding, errors="replace", newline="\n") as file:
            number = 0
            while line := file.readline(LONGEST):
                number += 1
                if line.strip():
                    yield number, line.rstrip()
                while line and not line.endswith("\n"):
                    line = file.readline(LONGEST)


def _each(read: Callable[[str], Served | None]) -> Callable[[Sequence[Line]], Found]:
    """Line by line. None is an interval without drafts; a line that cannot be read is named."""

    def every(lines: Sequence[Line]) -> Found:
        records, wrong = list[Served](), list[str]()
        for number, line in lines:
            try:
                found = read(line)
            except BadField as why:
                wrong.append(f"line {number}: {why}")
            else:
                records += [found] if found else []
        return records, left_out(wrong)

    return every


def left_out(wrong: Sequence[str], what: str = "line") -> list[str]:
    if not wrong:
        return []
    return [f"{plural(len(wrong), what)} left out that cannot be read, the first is {wrong[0]}."]


def _after(name: str, line: str) -> str | None:
    """The number after a name, as text; None where the line lacks the name."""
    found = re.search(rf"{name}\s*[:=]\s*([^\s,%\\\"]+)", line)
    return found[1] if found else None


# ── vLLM ─────────────────────────────────────────────────────────────────────────────────────────

_LIST = r"((?:\d|-|nan|inf)[-+\w.]*(?:, ?(?:\d|-|nan\b|inf\b)[-+\w.]*)*)"
_BY_PLACE = re.compile(rf"Per-position acceptance rate: {_LIST}")


def _vllm_line(line: str) -> Served | None:
    """``SpecDecoding metrics: Mean acceptance length: 2.16, Accepted: 150 tokens, …``: the order
    of its fields, and which there are, changed between versions."""
    accepted, drafted = (_after(rf"\b{name}(?=: \S{{1,24}} tokens\b)", line)
                         for name in ("Accepted", "Drafted"))  # fmt: skip
    if drafted is not None and whole_of(drafted, "count of drafted tokens") == 0:
        return None
    mean = _after("Mean acceptance length", line)
    mean = None if mean is None else value_of(mean, "mean length", MAX_PLACES)
    listed = _BY_PLACE.search(line)
    rates = rates_of(listed[1]) if listed else ()
    if accepted is not None and drafted is not None:
        counts = (
            whole_of(accepted, "count of accepted tokens"),
            whole_of(drafted, "count of tokens"),
        )
        return counted("vLLM", counts, mean, rates)
    if mean is None and not rates:
        raise BadField("it ends before its counts")
    tau = 1 + sum(rates)
    if mean is not None and rates and abs(mean - tau) > 0.005 + 0.0005 * len(rates) + 1e-9:
        raise BadField("its mean length is not 1 + its shares by place")
    return Served("vLLM", rates=rates or None, mean=tau if rates else mean)


# ── SGLang ───────────────────────────────────────────────────────────────────────────────────────


def _sglang_line(line: str) -> Served:
    """``Decode batch, …, accept len: 2.40, accept rate: 0.84, …``. The length counts the bonus
    token. The rate does so in some versions only, so it is not read."""
    return Served("SGLang", mean=_length(_after("accept len", line) or ""))


_VALUE = re.compile(r" ([^\s\"}]{1,40})(?: -?\d{1,20})?$")  # of a sample, which may tell its time


def _sglang_gauge(line: str) -> Served | None:
    found = _VALUE.search(line)
    text = found[1] if found else ""
    value = value_of(text, "spec_accept_length", MAX_PLACES)
    return Served("SGLang", mean=_length(text)) if value else None


def _length(text: str) -> float:
    mean = value_of(text, "accept len", MAX_PLACES)
    if mean < 1:
        raise BadField("its accept len is below 1")
    return mean


# ── llama.cpp ────────────────────────────────────────────────────────────────────────────────────

_LLAMA = re.compile(
    r"draft acceptance(?: rate)? *= *\S{1,24} *\( *(\S{1,24}) accepted / *(\S{1,24}) gen"
)
_LLAMA_PLACES = re.compile(
    r"(?:acc per pos|acceptance rate per position|#acc rate/pos) = \(([^)]*)"
)
_LLAMA_SUMS = re.compile(
    r"statistics +([\w-]{1,40}): .{0,99}?#gen drafts = *([^\s,]{1,24}), .{0,99}?"
    r"#gen tokens = *([^\s,]{1,24}), #acc tokens = *([^\s,]{1,24})"
)
_TASK = re.compile(r"\bid\s+\d+ \| task -?\d+ \|")


def _llama_requests(lines: Sequence[Line]) -> Found:
    """``draft acceptance = 0.63158 (   24 accepted /    38 generated), mean len =  2.85``, at trace
    level followed by ``acc per pos = (0.923, 0.615)``; older ones say ``acceptance rate``."""
    joined, last = list[Line](), dict[str, int]()  # of each request, whose lines may take turns
    for number, line in lines:
        at = last.get(_tag(line))
        if not _LLAMA.search(line) and at is not None and not _LLAMA_PLACES.search(joined[at][1]):
            joined[at] = (joined[at][0], f"{joined[at][1]} {line}")
        else:
            last[_tag(line)] = len(joined)
            joined.append((number, line))
    bare = not any(_LLAMA.search(line) for _, line in joined)
    return _each(partial(_llama_request, bare))(joined)


def _tag(line: str) -> str:
    found = _TASK.search(line)
    return found[0] if found else ""


def _llama_request(bare: bool, line: str) -> Served | None:
    """``bare``: whether the log has shares by place alone."""
    found = _LLAMA.search(line)
    if found is None and not bare:
        raise BadField("the line with its counts is missing")
    if found is None:
        return Served("llama.cpp", rates=_places(line))
    accepted, drafted = (whole_of(text, "count of tokens") for text in found.groups())
    mean = _after("mean (?:len|acceptance length)", line)
    mean = None if mean is None else value_of(mean, "mean length", MAX_PLACES)
    return _llama_counted((accepted, drafted), mean, _places(line)) if drafted else None


def _places(line: str) -> tuple[float, ...]:
    listed = _LLAMA_PLACES.search(line)
    return rates_of(listed[1]) if listed and listed[1].strip() else ()


def _llama_counted(counts: tuple[int, int], mean: float | None, rates: tuple[float, ...]) -> Served:
    try:
        return counted("llama.cpp", counts, mean, rates)
    except BadField:  # it may list the first places only
        return counted("llama.cpp", counts, mean, rates, listed=False)


def _llama_sums(lines: Sequence[Line]) -> Found:
    """``statistics draft-mtp: … #gen drafts = 134, … #gen tokens = 536, #acc tokens = 354, … #acc
    rate/pos = (0.813, …)``: sums since the start, so the last line of each drafter counts."""
    last = {found[1]: (line, found) for line in lines if (found := _LLAMA_SUMS.search(line[1]))}
    records, wrong = list[Served](), list[str]()
    for (number, line), found in last.values():
        try:
            rounds, drafted, accepted = (whole_of(text, "count") for text in found.groups()[1:])
            rates = _places(line)
            if accepted > drafted or rounds > drafted:
                raise BadField("more tokens are accepted, or drafts made, than tokens drafted")
        except BadField as why:
            wrong.append(f"line {number}: {why}")
            continue
        if rounds:
            places, off = kept_by(rates, rounds, (rounds, rounds), None)
            counts = (rounds, drafted, accepted)
            records.append(Served("llama.cpp", *counts, places=places or None, off=off))
    names = ", ".join(last)
    notes = [f"The last 'statistics' of each drafter is used, since the server's start: {names}."]
    return records, [*(notes if records else ()), *left_out(wrong)]


# ── all forms ────────────────────────────────────────────────────────────────────────────────────

# Of several forms of one engine in a file the first counts: the others count the same once more.
FORMS = (
    CountsForm(
        "vLLM",
        "log line",
        re.compile(r"SpecDecoding metrics: |Per-position acceptance rate: "),
        _each(_vllm_line),
    ),
    CountsForm(
        "vLLM", "page", re.compile(r"^vllm:spec_decode_num_(?!.*_created)"), counters("vLLM")
    ),
    CountsForm(
        "SGLang",
        "log line",
        re.compile(r"^.{0,200}?Decode batch\b(?=.*\baccept len: )"),
        _each(_sglang_line),
    ),
    CountsForm("SGLang", "page", re.compile(r"^sglang:spec_accept_length\b"), _each(_sglang_gauge)),
    CountsForm(
        "llama.cpp",
        "log line",
        re.compile(rf"{_LLAMA.pattern}|\bacc per pos = \("),
        _llama_requests,
    ),
    CountsForm("llama.cpp", "drafter", _LLAMA_SUMS, _llama_sums),
    CountsForm(
        "llama.cpp", "page", re.compile(r"^llamacpp:spec_decode_num_"), counters("llama.cpp")
    ),
    CountsForm(TENSORRT, "iteration", MARK, _each(iteration)),
    CountsForm(
        TENSORRT,
        "page",
        re.compile(rf"^{TENSORRT_NAMES}(?!_created)"),
        tensorrt_counters,
    ),
)

# one of these words is in every mark above: most lines of a log are passed over quickly
_ANY = re.compile("spec|Spec|acc")

_UNKNOWN = (
    "holds no counts in a form that is known: log lines or metrics of vLLM, SGLang, llama.cpp or "
    "TensorRT-LLM, or their responses as JSON"
)
