"""Findings that not every run has: larger than chance, and large enough to matter.

A rule that is not lossless, a text that does not follow p, a cliff or a slope along the text, a
sort of token much worse than the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

from analysis.frames import By, Frame
from analysis.labels import temperature
from analysis.measures import places
from analysis.measures.finding import Finding
from analysis.measures.places import KINDS, MATTERS, Over
from analysis.measures.strays import Strays
from analysis.measures.tables import Tables
from analysis.numbers import number, plural
from core.rounds.causes import Cause
from core.stats import FEW_COMPARED, FEW_SEEN

OUTSTANDING = ("rule", "text", "cliff", "slope", *KINDS)  # what these findings are about
SIMULATED, FLY, STANDARD = "synthetic", "fly", "standard"  # vLLM's ``rejection_sample_method``
LOSSY = {
    SIMULATED: (
        "Acceptance was simulated, at rates that somebody chose: over {rounds}, τ, the accepted "
        "tokens and why walks ended say nothing about the drafter. p, q, TVD and coverage do."
    ),
    FLY: (
        "FLy also accepts tokens that the target would not have written: over {rounds}, the text "
        "is not plain decoding's, and τ is not that of a lossless rule."
    ),
}
_KINDS = {"token_class": "Tokens of the sort", "script": "Tokens in", "tag": "Prompts tagged"}


def rule(tables: Tables, by: By = "method") -> Iterator[Finding]:
    """Say of a rule that is not lossless what its acceptance means, and of one that is where it was
    broken, of however few rounds."""
    for word, said in LOSSY.items():
        for label, rows in ruled(tables, word).groupby(by, observed=True):
            n, first = len(rows), rows.iloc[0]
            words = said.format(rounds=plural(n, "round"))
            look = str(first["run"]), int(first["round"])
            yield Finding(str(label), "rule", n, words, *look)
    for label, rows in ruled(tables, STANDARD).groupby(by, observed=True):
        broken = rows[rows["stop"] == Cause.NOT_TAKEN]
        if n := len(broken):
            words = (
                "Speculative sampling never writes the drafted token that it has just refused, and "
                f"did in {n} of {plural(len(rows), 'round')}: the engine's sampling, or the record "
                "of what was accepted, is at fault."
            )
            first = broken.iloc[0]
            yield Finding(str(label), "rule", n, words, str(first["run"]), int(first["round"]))


def ruled(tables: Tables, word: str) -> Frame:
    """The rounds of the runs that name this rule."""
    own = [n for n, facts in tables.about.items() if facts.header.settings.get("rule") == word]
    return tables.rounds[tables.rounds["run"].isin(own)]


def text(tables: Tables, by: By = "method") -> Iterator[Finding]:
    """Say where texts hold more tokens than the recorded p allows (``strays``)."""
    greedy = {name: temperature(run.header) == 0 for name, run in tables.about.items()}
    rounds = tables.rounds.assign(greedy=tables.rounds["run"].astype(str).map(greedy))
    for (label, best), own in rounds[rounds["told"] > 0].groupby([by, "greedy"], observed=True):
        n, found, allowed = (own[name].sum() for name in ("told", "strays", "strays_allowed"))
        if found < FEW_SEEN or not Strays(n, found, allowed).unlikely:
            continue
        of = plural(int(n), "greedy token" if best else "sampled token")
        what = "are neither the best of p nor near it" if best else "are not the best of p"
        rest = "" if best else f", where {number(allowed, 0)} at most may be expected"
        words = (
            f"The text does not follow p: {found} of {of} {what}{rest}. The engine wrote by "
            "another rule, or its record of p or of its settings is wrong."
        )
        most = own.sort_values("strays", ascending=False, kind="stable")
        yield Finding.of(label, "text", n, "token", words, most)


def place(tables: Tables, by: By = "method") -> Iterator[Finding]:
    """Whether acceptance changes along the text, at a cliff or slowly."""
    for label, part in places.drafting(tables).groupby(by, observed=True):
        lengths = (part["accepted"] + 1).to_numpy()
        found = places.step(part["position"].to_numpy(), lengths, part["run"].cat.codes.to_numpy())
        if found is None:
            continue
        where = f"token {found.place}"
        change = (
            f"τ is {number(found.before)} before {where} and {number(found.after)} from there on"
        )
        word = "falls" if found.after < found.before else "rises"
        shape = f"with a cliff at {where}" if found.cliff else "slowly"
        inside = f", in the {found.texts} texts that go on from there" if found.texts > 1 else ""
        over = f"over {plural(found.rounds, 'round')}"
        words = f"Acceptance {word} along the text, {shape}: {change}{inside}, {over}."
        about = "cliff" if found.cliff else "slope"
        behind = part["position"] >= found.place
        both = behind.groupby(part["run"], observed=True).transform("nunique") == 2
        example = part[behind & both]
        yield Finding.of(label, about, found.rounds, "round", words, example)


def kinds(tables: Tables, by: By = "method") -> Iterator[Finding]:
    """The sorts of tokens, scripts and tags accepted much less than others at the same depths."""
    for over in KINDS:
        for row in places.beside_others(tables, over, by):
            observed, rest = row["observed"], row["rest"]
            few = min(observed, row["others"]) < FEW_COMPARED
            if few or row["acceptance_high"] >= (1 - MATTERS) * rest:
                continue
            words = (
                f"{_KINDS[over]} {row[over]} are accepted at {number(row['acceptance'])} of "
                f"{plural(observed, 'position')}; at the same depths all others are at "
                f"{number(rest)}, over {row['others']}."
            )
            missed = _missed(tables, by, row[by], over, row[over])
            yield Finding.of(row[by], over, observed, "position", words, missed)


def _missed(tables: Tables, by: By, label: object, over: Over, value: object) -> Frame:
    """The first position of a sort that was not accepted."""
    for part in places.placed(tables, over):
        found = part[(part[by] == label) & (part[over] == value) & ~part["accepted"]]
        if len(found):
            return found
    raise AssertionError("what is accepted less than the rest was missed somewhere")
