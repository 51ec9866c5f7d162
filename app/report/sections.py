"""The parts of a report: a title, a table of ``analysis.measures.metrics``, and its columns.

``shown`` turns them into lines for the terminal and for the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.labels import split_by
from analysis.numbers import UNKNOWN, number, plural
from core.stats import FEW_UNITS

if TYPE_CHECKING:
    from analysis.measures.tables import Tables
    from core.traces.schema import Header

Frame = Any
MAX_DEPTHS, MAX_CLASSES, MAX_RANK = 32, 6, 8  # that a report shows
MANY = 15  # 95 % intervals of which one misses more likely than none does
FIRST = 4  # places of drafts that begin alike


@dataclass(frozen=True)
class Section:
    """A part of a report, shown if its table has lines.

    columns  names of the table's columns; NAME:FORMAT shows one in another format than is declared
        for it. "*" stands for a column per value of ``across``, each with what ``cell`` names
    words    a sentence per line, in place of columns: names of columns in braces
    above    a sentence above the table; ``below`` makes sentences below it
    keep     the lines and columns that are shown
    each     columns whose values each have a table of their own, named in the title
    absent   a cell that has no line
    """

    title: str
    table: str
    columns: str = ""
    words: str = ""
    above: str = ""
    below: Callable[[Tables, Frame], Iterable[str]] = lambda tables, frame: ()
    keep: Callable[[Frame], Frame] = lambda frame: frame
    each: tuple[str, ...] = ()
    across: str = ""
    cell: str = ""
    absent: str = number(0.0)


# ── lines that are shown, and sentences below ────────────────────────────────────────────────────


def _outstanding(frame: Frame) -> Frame:
    from analysis.measures.outstanding import OUTSTANDING

    return frame[frame["finding"].isin(OUTSTANDING)]


def _usual(frame: Frame) -> Frame:
    return frame.drop(_outstanding(frame).index)


def _several(column: str) -> Callable[[Frame], Frame]:
    """Nothing where a column has one value: there is nothing to compare."""
    return lambda frame: frame if frame[column].nunique() > 1 else frame[:0]


def _first_depths(frame: Frame) -> Frame:
    return frame[frame["depth"] <= MAX_DEPTHS]


def _by_depth(frame: Frame) -> Frame:
    return _first_depths(_ended(frame, "depth"))


def _by_token(frame: Frame) -> Frame:
    """The commonest sorts of token."""
    found = _ended(frame, "token_class")
    most = found.sort_values(["method", "observed"], ascending=[True, False], kind="stable")
    place = most.groupby("method", observed=True)["token_class"]
    return most[place.transform(lambda sorts: sorts.factorize()[0]) < MAX_CLASSES]


def _ended(frame: Frame, over: str) -> Frame:
    """Keep the observed rows, and add how many there were and an example of the commonest cause."""
    seen = frame[frame["observed_share"].notna()].copy()
    place = seen.groupby(["method", over], observed=True, sort=False)["count"]
    most = seen.loc[place.transform("idxmax")]
    seen["observed"] = place.transform("sum")
    seen["example"] = [
        f"{row['example_run']}, round {row['example_round']}, row {row['example_row']}"
        for row in most.to_dict("records")
    ]
    return seen


def _left_at(frame: Frame) -> Frame:
    """Where the target's token stood, and how often it was in the tree all the same; of methods
    whose traces tell it."""
    from pandas import Categorical

    told: Frame = frame["rank"].notna() | frame["outside"].astype(bool)
    frame = frame[told.groupby(frame["method"], observed=True).transform("any")]
    later = MAX_RANK + 1
    ranks = [f"rank {rank}" for rank in range(2, later)]
    where = "rank " + frame["rank"].clip(upper=later).astype("string")
    where = where.replace(f"rank {later}", f"rank > {MAX_RANK}").fillna("not recorded")
    where = where.where(~frame["outside"].astype(bool), "not listed")
    places = Categorical(where, [*ranks, f"rank > {MAX_RANK}", "not listed", "not recorded"])
    found = frame.assign(place=places).groupby(["method", "place"], observed=True, sort=False)
    told = found[["count", "drafted", "share"]].sum().reset_index()
    sums = told.groupby("method", observed=True)[["count", "drafted"]].transform("sum")
    return told.assign(rounds=sums["count"], drafted=sums["drafted"] / sums["count"])


def _no_interval(tables: Tables, frame: Frame) -> Iterator[str]:
    if bool((frame["low"].isna() & (frame["rounds"] > 0)).any()):
        from analysis.measures.units import TOO_FEW

        yield TOO_FEW


def doubts(tables: Tables, frame: Frame) -> Iterator[str]:
    """Say of the pairs in a table what it cannot tell of them."""
    from analysis.labels import sampling

    if (frame["prompts"] < FEW_UNITS).any():
        yield f"Fewer than {FEW_UNITS} prompts give a difference but no interval: run both on more."
    if (spans := int(frame["low"].notna().sum())) >= MANY:
        missing = f"of these {spans}, expect about {spans / 20:.0f}"
        yield f"A 95 % interval may miss the true value by chance: {missing}."
    first = _first(tables)
    for row in frame[frame["same"] < frame["texts"]].to_dict("records"):
        why = (
            "sampled texts may part at any token."
            if not all(sampling(first[row[name]]).greedy for name in ("method", "other"))
            else "`trace compare` says whether the others part at near ties."
        )
        cut, texts = row["beginnings"], row["texts"]
        yield (
            f"{row['method']} and {row['other']} wrote the same text in {row['same']} of {texts}"
            + (f", and in {cut} one text is the other's beginning" if cut else "")
            + (f": {why}" if row["same"] + cut < texts else ".")
        )


def _first(tables: Tables) -> dict[str, Header]:
    """The header of each label's first run."""
    return {label: tables.about[run].header for run, label in reversed(tables.labels.items())}


def _unpaired(tables: Tables, frame: Frame) -> Iterator[str]:
    from analysis.measures.comparison import incomparable
    from app.view.comparison import cautions

    yield from doubts(tables, frame)
    first = _first(tables)
    for one, other in incomparable(tables):
        why = cautions(first[one], first[other]) or (
            "they share no text (token limits, dtypes or devices may differ)",
        )
        yield f"{one} and {other} cannot be compared: {why[0]}."


# ── the parts ────────────────────────────────────────────────────────────────────────────────────

_RATES = "observed acceptance acceptance_low probed tvd tvd_low"

TAU = Section(
    "Block efficiency τ, tokens per round, with its 95 % interval", "tau",
    "method tau low over prompts runs rounds tokens nodes_per_round committed_per_round "
    "tokens_per_second round_pace",
    below=_no_interval,
)  # fmt: skip
PAIRED = Section(
    "Methods on the same prompts", "paired",
    "method other prompts texts same tau other_tau difference low better", below=_unpaired,
)  # fmt: skip
BEGINS = Section(
    "At the places where rounds of both begin", "same-begins",
    "depth own_rounds own_share others_rounds others_share rounds value other_value difference low",
    keep=lambda frame: frame[frame["depth"] <= FIRST], each=("method", "other"),
    above="Share of the drafts that accept each place. With another draft length, rounds begin at "
    "other tokens. Where rounds of both begin, the text before them is the same.",
)  # fmt: skip
CHECKPOINTS = (
    Section(
        "By depth, paired by text", "checkpoints-by-depth",
        "measure depth texts value count other_value other_count difference low",
        keep=_first_depths, each=("method", "other"),
    ),
    Section(
        "Where one lives and the other dies", "checkpoints-stretches",
        words="{method} takes the {tokens} tokens from {position} in one round ({run}, round "
        "{round}); {other} begins {other_rounds} rounds there ({other_run}, from round "
        "{other_round}).",
        each=("method", "other"),
    ),
)  # fmt: skip
_FOUND = "{method}: {sentence} ({run}, round {round})"
REPORT = (
    TAU,
    Section("What stands out", "findings", words=_FOUND, keep=_outstanding),
    Section("In words, each with a round to look at", "findings", words=_FOUND, keep=_usual),
    PAIRED,
    BEGINS,
    *CHECKPOINTS,
    Section(
        "By depth", "per-depth",
        "depth observed tested accepted acceptance acceptance_low tested_acceptance marginal top1 "
        "probed tvd tvd_low coverage_1 coverage_4 coverage_16",
        keep=_first_depths, each=("method",),
    ),
    Section(
        "Tokens per round, accepted + 1: share of rounds", "acceptance-histogram",
        "method length rounds share share:bar",
    ),
    Section(
        "Why branches ended", "causes-by-depth", "method depth observed * example",
        across="cause", cell="observed_share", keep=_by_depth,
        above="What became of drafted nodes whose parent was accepted; the others are unreached. "
        "Of a rejected node the reason says why the wanted token was not there.",
    ),
    Section(
        "Why the walks ended, by the depth of the token after the last accepted one",
        "stops-by-depth", "method depth observed * example",
        across="cause", cell="observed_share", keep=_by_depth,
    ),
    Section(
        "Why the walks ended, by the sort of token that the target wanted there",
        "stops-by-token", "method token_class observed * example",
        across="cause", cell="observed_share", keep=_by_token,
    ),
    Section(
        "By place in the text", "by-place", f"method place rounds tau low {_RATES}",
        keep=_several("place"),
        above="Places are counted from the start of the prompt, and a line holds only the texts "
        "that reach it: with several texts, lines may differ for that reason alone.",
    ),
    Section(
        "By the sort of the target's token", "by-token-class", f"method token_class {_RATES}",
    ),
    Section(
        "By the script of the target's token", "by-script", f"method script {_RATES}",
        keep=_several("script"),
    ),
    Section("By the prompts' tag", "by-tag", f"method tag {_RATES}", keep=_several("tag")),
    Section(
        "Against hindsight, accepted nodes per round", "oracle",
        "method rounds accepted marginal listed possible builder_loses order_loses lists_lose "
        "tree_share lists_share",
        above="Hindsight drafts the text itself, as far as its tokens are in the lists that this "
        "budget reads. The lists lose what is missing there; the tree loses the rest.",
    ),
    Section(
        "Where the target first left the drafter's best chain", "first-mismatches",
        "method rounds * drafted", across="place", cell="share", keep=_left_at,
    ),
    Section(
        "After a token that was not the drafter's best", "after-sibling",
        "method context observed acceptance low top1 top1_low tvd", keep=_several("context"),
    ),
    Section(
        "Is q a probability?", "calibration-error",
        "method event nodes mean_q share bias ece_mass ece_width brier",
        keep=lambda frame: frame[frame["nodes"] > 0],  # of methods some q of which is known
    ),
    Section(
        "Σq of a round against what was accepted", "surrogate",
        "method rounds expected accepted bias bias_low over correlation",
    ),
    Section(
        "Where the time went, ms per round that was timed", "stages", "method timed *",
        across="stage", cell="ms_per_round share",
        keep=lambda frame: frame if frame["seconds"].sum() > 0 else frame[:0],
    ),
    Section(
        "The same by other names", "engine-metrics", "engine metric formula *",
        across="method", cell="value", keep=lambda frame: frame[frame["place"].isna()],
    ),
    Section(
        "The same by place of the draft", "engine-metrics", "metric formula *",
        across="method", cell="value", each=("engine",), absent=UNKNOWN,
        keep=lambda frame: frame[(frame["place"] < MAX_DEPTHS).fillna(False)],
    ),
)  # fmt: skip


def notes(tables: Tables) -> Iterator[str]:
    """Say what the numbers count and leave out."""
    from analysis.measures.tables import INTERRUPTED

    runs = tables.runs
    yield (
        "Observed: the parent was accepted; deeper positions count nowhere. Tested: something was "
        "drafted there. Probed: p and all of q are known there; TVD and C are means over these. "
        "τ counts whole accepted paths."
    )
    rounds = tables.rounds
    if unknown := int((rounds["last_depth"].isna() & (rounds["nodes"] > 0)).sum()):
        yield (
            f"In {plural(unknown, 'round')} the drafter's last depth is not recorded: they count "
            "by depth only as deep as their draft goes, so acceptance there may be too high."
        )
    if cut := int(runs["cut"].sum()):
        yield (
            "Beyond the end of a text (stop token or token limit): "
            f"{plural(cut, 'verified token')}, left out of the column in text/round alone."
        )
    if broken := int((runs["ended"] == INTERRUPTED).sum()):
        yield (
            f"{broken} of {plural(len(runs), 'run')} {'was' if broken == 1 else 'were'} "
            "interrupted: their whole rounds count, but they are compared with no other run."
        )
    if empty := int((runs["rounds"] + runs["left_out"] == 0).sum()):
        has, it = ("has", "it") if empty == 1 else ("have", "them")
        yield (
            f"{empty} of {plural(len(runs), 'run')} {has} no rounds: only the numbers of runs and "
            f"of prompts count {it}."
        )
    if left_out := int(runs["left_out"].sum()):
        yield (
            f"{plural(left_out, 'round')} {'is' if left_out == 1 else 'are'} left out: denoising "
            "rounds, texts that ended at once, or rounds with faults."
        )
    if len(tables.rounds) and tables.rounds["accepted"].max() >= MAX_DEPTHS:
        yield (
            f"Tables by depth and by place show the first {MAX_DEPTHS}; --json and --out have all."
        )
    if len(tables.rounds) and all(p["tvd"].isna().all() for p in tables.each("positions", ["tvd"])):
        yield "No trace holds probe numbers: TVD and coverage are not known."


def cautions(tables: Tables) -> Iterator[str]:
    """Sentences to be read before any number: faults, copies, settings that split runs."""
    for name, run in tables.about.items():
        if run.mark:
            yield f"{name}: {run.mark}."
    for first, *copies in tables.copies():
        others = copies[0] if len(copies) == 1 else f"{len(copies)} more ({copies[0]}, …)"
        yield (
            f"{first} and {others} have the same header, time of creation included, and the same "
            "text: they may be copies of one run, and each counts."
        )
    for sentence in split_by({name: run.header for name, run in tables.about.items()}):
        yield f"{sentence}."
