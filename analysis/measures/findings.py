"""Findings from the tables of runs: all of them, and those that every run has.

Where the walks ended, and whether a wider tree, a deeper one or better probabilities would change
it. All that is said of what would help comes from one decision (``remedies``). What not every run
has is in ``outstanding``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from analysis.frames import COVERAGE, By, Frame, declared
from analysis.measures import acceptance, causes, places, reliability, remedies
from analysis.measures.finding import Finding, few_once
from analysis.measures.outstanding import SIMULATED, kinds, place, rule, ruled, text
from analysis.measures.remedies import Claim, Claims, Remedy, Walks
from analysis.measures.tables import Tables, grouped
from analysis.numbers import interval, number, percent, plural, signed
from core.rounds.draft import Array
from core.stats import FEW_SEEN

SLIGHT = 0.01  # tokens a round by which path probabilities are off, below which it is no matter
SURE = 1e-6  # nats of q's entropy, below which all of q is on one token
FLAT = 0.02  # coverage that all further candidates add, below which the curve counts as flat


def findings(tables: Tables, by: By = "method") -> list[Finding]:
    """All findings, by the labels' order. Of simulated acceptance nothing else is concluded."""
    told, simulated = [*rule(tables, by)], {str(x) for x in ruled(tables, SIMULATED)[by].unique()}
    found = few_once([finding for make in _MAKERS for finding in make(tables, by)])
    told += [finding for finding in found if finding.label not in simulated]
    order = tables.rounds[by].unique().tolist()
    return sorted(told, key=lambda finding: order.index(finding.label))


@declared("findings")
def table(tables: Tables) -> pd.DataFrame:
    """All findings of every method, a sentence each."""
    names = {"label": "method", "about": "finding", "words": "sentence"}
    rows = [asdict(each) for each in findings(tables)]
    for row in rows:
        row["claims"] = ", ".join(f"{what}: {claim}" for what, claim in row["claims"].items())
    return pd.DataFrame(rows).rename(columns=names)


def ends(tables: Tables, by: By = "method") -> Iterator[Finding]:
    """Say what ended the walks, most of them first, and what would have helped them."""
    for own in remedies.walks(tables, by):
        n, counts, claims = len(own.rounds), own.counts.most_common(), dict[Remedy, Claim]()
        words = f"{counts[0][1]} of {plural(n, 'walk')} "
        for at, (cause, count) in enumerate(counts):
            ending = own.ending(cause)
            words += f"{f' {count} ' if at else ''}{ending.what}: {ending.helps}."
            claims |= ending.claims
        example = causes.examples(tables, counts[0][0], "stops", 1, **{by: own.label})
        yield Finding.of(own.label, "ends", n, "walk", words, example, claims)


def width(tables: Tables, by: By = "method") -> Iterator[Finding]:
    """Whether the drafter's further candidates add anything, and to how many walks."""
    known = _curves(tables, by, 1)
    for own in remedies.walks(tables, by):
        if own.label not in known.index:
            continue
        row = known.loc[own.label]
        counts = row[[f"{name}_count" for name in COVERAGE]].to_numpy(int)
        last, n = _reached(counts), int(row["size"])
        if counts[last - 1] < n:  # one curve is of the same positions at every K
            row, n = _curves(tables, by, last).loc[own.label], counts[last - 1]
        curve = row[list(COVERAGE[:last])].to_numpy(float)
        course = _along(curve) if not row["entropy_q"] <= SURE else _alone(curve)
        words = f"{course}, over {plural(n, 'observed position')}."
        said, claims = _wider(own)
        example = _widest(tables, by, own.label, COVERAGE[last - 1])
        yield Finding.of(own.label, "width", n, "observed position", words + said, example, claims)


def _covered(tables: Tables, width: int) -> Iterator[Frame]:
    """The positions whose coverage is known up to K = ``width``, part by part."""
    for part in tables.each("positions", ["round", "entropy_q", *COVERAGE]):
        yield part[part[COVERAGE[width - 1]].notna()]


def _curves(tables: Tables, by: By, width: int) -> Frame:
    """Each label's mean coverage over those positions, at every K the number that tell it, and the
    mean entropy of q."""
    return grouped(_covered(tables, width), [by], means=[*COVERAGE, "entropy_q"])


def _reached(counts: Array) -> int:
    """The largest K whose coverage at least half of the positions tell: traces of one label may
    list different numbers of tokens. ``counts`` [K]: falling."""
    return int(np.count_nonzero(2 * counts >= counts[0]))


def _widest(tables: Tables, by: By, label: str, last: str) -> Frame:
    """The first position of a label where the other candidates hold most."""
    best = list[Frame]()
    for part in _covered(tables, 1):
        rows = part[part[by] == label]
        gained = (rows[last] - rows[COVERAGE[0]]).fillna(-1.0)
        best.append(rows.assign(gained=gained).nlargest(1, "gained"))
    return pd.concat(best, ignore_index=True).nlargest(1, "gained")


def _wider(own: Walks) -> tuple[str, Claims]:
    """Whether a larger or a wider tree would have helped, with the walks; nothing of too few."""
    if len(own.rounds) < FEW_SEEN:
        return "", {}
    names = {Remedy.NODES: "More nodes", Remedy.WIDER: "A wider tree"}
    helped = {remedy: own.helped(remedy) for remedy in names if own.helped(remedy)}
    if helped:
        total = plural(len(own.rounds), "walk")
        said = [f" {names[remedy]} would help {n} of {total}." for remedy, n in helped.items()]
        if own.not_known:
            said.append(f" For {own.not_known} this is not known.")
        return "".join(said), dict.fromkeys(helped, Claim.HELPS)
    claim = own.claim(Remedy.WIDER)
    if claim is Claim.UNKNOWN:
        return " Whether a wider tree would help is not known.", {Remedy.WIDER: claim}
    said = " No walk ended at a listed token: a wider tree of the same lists would help none."
    return said, {Remedy.WIDER: claim}


def _along(curve: Array) -> str:
    """The course of coverage as K grows; ``curve`` as in ``flat_from``."""
    flat, last, all_of_it = flat_from(curve), len(curve), percent(curve[-1])
    if curve[-1] < FLAT:  # then nothing tells a flat curve from a rising one
        return f"Coverage is next to nothing: the {_tokens(last)} {all_of_it} of p"
    at = flat or last // 2
    course = f"{'is flat' if flat else 'still rises'} after K = {at}"
    return (
        f"Coverage {course}: the {_tokens(at)} {percent(curve[at - 1])} of p, the {last} best "
        f"{all_of_it}"
    )


def _alone(curve: Array) -> str:
    """The coverage of a q that has but one token everywhere: nothing can come after it."""
    return f"q is all on one token, which holds {percent(curve[0])} of p"


def flat_from(coverage: Array) -> int | None:
    """The smallest K after which all further candidates together add less than ``FLAT``.

    ``coverage`` [K]: C_1, C_2, …  None where even the second half of the candidates adds more.
    """
    flat = int(np.flatnonzero(coverage[-1] - coverage < FLAT)[0]) + 1
    return flat if flat <= max(1, len(coverage) // 2) else None


def depth(tables: Tables, by: By = "method") -> Iterator[Finding]:
    """How far acceptance falls with depth, and whether walks used the whole of it."""
    per_depth: Frame = acceptance.per_depth(tables, by=by)
    for own in remedies.walks(tables, by):
        rows = own.drafted
        words, claim = _depths(own), own.claim(Remedy.DEEPER)
        sure = per_depth[(per_depth[by] == own.label) & (per_depth["observed"] >= FEW_SEEN)]
        if len(sure) > 1 and len(rows) == len(own.rounds):  # else places without a draft count, too
            first, last = sure.iloc[0], sure.iloc[-1]
            words += (
                f" A drafted token was accepted at {_accepted(first)} and at {_accepted(last)}, "
                "given that all tokens before it were accepted."
            )
        longest = rows.sort_values("accepted", ascending=False, kind="stable")
        claims = {Remedy.DEEPER: claim}
        yield Finding.of(own.label, "depth", len(rows), "walk", words, longest, claims)


def _depths(own: Walks) -> str:
    """How many walks used the whole depth, and whether more depths could help."""
    known, n = int(own.drafted["last_depth"].notna().sum()), len(own.drafted)
    ending = "" if n == len(own.rounds) else " with a draft"
    said = []
    if known:
        said.append(f"{own.whole} of {plural(known, 'walk')}{ending} used the whole depth")
    if known < n:
        walk = plural(n - known, "walk")
        said.append(f"{own.to_the_end} of {walk}{ending} used the whole drafted depth")
    helps = {
        Claim.COULD: "more depths could help",
        Claim.NOT: "more depths would help none",
        Claim.UNKNOWN: "whether the drafter goes deeper was not recorded",
    }[own.claim(Remedy.DEEPER)]
    return f"{', '.join(said)}: {helps}."


def trust(tables: Tables, by: By = "method") -> Iterator[Finding]:
    """Whether path probabilities add up to what rounds accept (``reliability.surrogate``)."""
    gaps = places.drafting(tables).assign(gap=lambda rows: rows["surrogate"] - rows["accepted"])
    frame: Frame = reliability.surrogate(tables, by=by)
    for row in frame.to_dict("records"):
        low, high = row["bias_low"], row["bias_high"]
        digits = 2 if min(abs(low), abs(high)) >= 0.005 else 3  # else a bound above 0 reads as 0
        within = "" if math.isnan(low) else f" {interval(low, high, digits, sign=True)}"
        words = (
            f"Path probabilities: {_kept_promise(row)}. In a round they add up to "
            f"{number(row['expected'])} tokens, and {number(row['accepted'])} were accepted: "
            f"{signed(row['bias'])}{within}, over {plural(row['rounds'], 'round')}."
        )
        own = gaps[(gaps[by] == row[by]) & gaps["gap"].notna()]
        most = own.sort_values("gap", ascending=row["bias"] < 0, kind="stable")
        yield Finding.of(row[by], "trust", row["rounds"], "round", words, most)
    drawn = gaps[gaps["method"].isin(reliability.drawn_methods(tables)) & gaps["gap"].notna()]
    for label, own in drawn.groupby(by, observed=True):
        words = (
            f"Path probabilities are not judged, over {plural(len(own), 'round')}: drafted tokens "
            "seem to be drawn from q or accepted by p ÷ q, and q does not say how often such "
            "tokens are accepted."
        )
        most = own.sort_values("drawn", ascending=False, kind="stable")
        yield Finding.of(label, "trust", len(own), "round", words, most)


def _kept_promise(row: Mapping[str, Any]) -> str:
    if math.isnan(row["bias_low"]):
        return f"whether they come true is not known from fewer than {FEW_SEEN} {row['over']}"
    if row["bias_low"] <= 0 <= row["bias_high"]:
        return "they are not shown to be off"
    if abs(row["bias"]) < SLIGHT:
        return f"they are off by less than {SLIGHT:g} tokens"
    return f"they promise too {'much' if row['bias'] > 0 else 'little'}"


def sibling(tables: Tables, by: By = "method") -> Iterator[Finding]:
    """Say what the target took where it first left the drafter's best tokens."""
    rounds = tables.rounds
    branching = set(rounds.loc[rounds["nodes"] > rounds["depths"], by].astype(str))
    for label, rows in causes.off_spine(tables).groupby(by, observed=True):
        n, second, drafted = len(rows), int((rows["rank"] == 2).sum()), int(rows["accepted"].sum())
        told: Frame = rows["rank"].notna() | rows["outside"]
        least, said = "" if told.all() else "at least ", list[str]()
        if second or (told.all() and rows["rank"].notna().any()):  # at least none says nothing
            said.append(f"the target took the second-best in {least}{percent(second / n)}")
        if drafted or str(label) in branching:  # a chain drafts no other
            said.append(f"the token taken was drafted all the same in {percent(drafted / n)}")
        first = f"Where the drafter's best token first missed, in {plural(n, 'round')}, "
        if said:
            yield Finding.of(label, "sibling", n, "round", f"{first}{'; '.join(said)}.", rows)


_MAKERS: tuple[Callable[[Tables, By], Iterable[Finding]], ...] = (
    text, ends, width, depth, trust, sibling, place, kinds,
)  # fmt: skip


def _tokens(count: int) -> str:
    return "best token holds" if count == 1 else f"{count} best tokens hold"


def _accepted(row: Frame) -> str:
    of = f"{int(row.accepted)} of {int(row.observed)}"
    return f"depth {int(row.depth)} in {percent(row.acceptance)} ({of})"
