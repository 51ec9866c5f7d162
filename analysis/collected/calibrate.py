"""Measure a drafter's calibration along the target's own continuations (TreeFlash §4, Appendix A).

From an anchor the target draws N continuations at temperature 1. Along each of them, p(· | true
prefix) is compared with every drafter's q there, given the true tokens before as far as the drafter
reads them. The reference is the *marginal* p̃, the mean of p over all continuations: among
distributions that depend on the context alone it is nearest to p in KL, and no list of K tokens
covers more of p on average. In TVD it is a reference, not a bound: a sharper q may be nearer.

N continuations tell it from two sides. Their own mean knows which they are, so it covers more of
their p than p̃ does. *Held out*, each of them is compared with the mean of the others, which knows
p̃ from N − 1 draws alone: it covers less, and is further off.

The continuations of an anchor are one tree, whose shared beginnings are scored once, so a depth of
all N costs one forward. A continuation that ends the text is followed no further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from analysis.collected.calibration import write_tables
from analysis.collected.collect import LoadedModels
from analysis.collected.given import Answer, Follows, told
from analysis.collected.many_texts import HELD_OUT, MARGINAL
from analysis.frames import COVERAGE, WIDEST
from core.decoding.along import Reading, along
from core.decoding.decode import Decoder, decode
from core.decoding.request import Settings
from core.drafting.best import top
from core.drafting.probabilities import coverage, tvd
from core.drafting.session import DraftSession
from core.errors import UserError
from core.journal import FILE, Journal, open_journal
from core.memory import Recent
from core.methods.names import PLAIN
from core.models.target import Target
from core.progress import Steps, silent
from core.ranges import Range
from core.rounds.draft import Array, Draft
from core.rounds.round import GREEDY, new_tokens
from core.verification.rules import TargetTokens

READINGS = 4  # kept texts in memory
TRUNCATED = 256  # tokens of p that make the marginal, as in the paper


@dataclass(frozen=True)
class CalibrationPlan:
    """The size of a calibration.

    anchors        in all, spread over the prompts and over the seeds
    continuations  N of each anchor
    seeds          repetitions with other anchors and continuations
    depths         how deep; None: as deep as the deepest drafter
    """

    anchors: int = 64
    continuations: int = 16
    seeds: int = 3
    new_tokens: int = 128
    depths: int | None = None

    def check(self, prompts: int) -> None:
        """Raises UserError with one sentence when a value is out of range."""
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is not None:
                Range(1, most).check(f"the {name.replace('_', ' ')}", value)
        if self.anchors < self.seeds:
            raise UserError(f"{self.seeds} seeds need at least as many anchors")
        if prompts < 1:
            raise UserError("calibration needs a prompt")


_MOST = {"anchors": 4096, "continuations": 1024, "seeds": 100, "new_tokens": 4096, "depths": 64}


@dataclass(frozen=True)
class Anchor:
    """Where continuations start: after token ``position`` of a prompt's text."""

    number: int
    seed: int
    prompt: int
    position: int


def calibrate(
    source: LoadedModels,
    prompts: Sequence[Sequence[int]],
    folder: Path,
    plan: CalibrationPlan = CalibrationPlan(),
    report: Steps = silent,
    given: Sequence[Answer] = (),
    kept: Sequence[Callable[[], Reading]] = (),
) -> pd.DataFrame:
    """Measure, or continue the measurement in ``folder``, and write the tables there.

    given  a text for each prompt, in which the anchors lie; none: the target writes them
    kept   what the target said of each given text elsewhere; none: it is run here. An anchor's one
           continuation is then the text itself, and a marginal is not measured

    Raises UserError for a plan out of range, a folder that holds another measurement, or a given
    text of another target.
    """
    plan.check(len(prompts))
    made_of = {
        **source.identity,
        "drafters": sorted(source.drafters),
        "prompts": [list(map(int, p)) for p in prompts],
        "plan": asdict(plan),
        "given": [asdict(answer) for answer in given],
        "kept": bool(kept),
        "references": [] if kept else [MARGINAL, HELD_OUT],
    }
    readings = Recent[Reading](READINGS)
    with open_journal(folder, "measurement", made_of) as journal:
        make = partial(_told, source, kept) if kept else partial(_texts, source)
        made = journal.made("texts", lambda: make(prompts, plan, given, report))
        texts = [np.array(text, np.int64) for text in made["texts"]]
        stops, found = source.facts.stop_ids, list[dict[str, Any]]()
        places = [_places(len(p), t, stops) for p, t in zip(prompts, texts, strict=True)]
        for anchor in (todo := anchors(plan, places)):

            def rows(anchor: Anchor = anchor) -> list[dict[str, Any]]:
                if not kept:
                    return _rows(source, texts[anchor.prompt], anchor, plan)
                reading = readings.get(anchor.prompt, kept[anchor.prompt])
                return _rows_kept(source, reading, anchor, plan)

            found += journal.made(f"anchor {anchor.number}", rows)
            report((anchor.number + 1) / len(todo), f"anchor {anchor.number + 1} of {len(todo)}")
        table = pd.DataFrame(found)
        write_tables(table, folder)
    return table


def anchors(plan: CalibrationPlan, places: Sequence[range]) -> list[Anchor]:
    """Random roots in the ``places`` of every prompt, seed by seed and prompt by prompt in turn; as
    few twice as there are places. A prompt without any is left out.

    Raises UserError when all are.
    """
    usable = [prompt for prompt, some in enumerate(places) if some]
    if not usable:
        raise UserError("every text ends with its first token: there is nothing to measure")
    found = []
    for seed in range(plan.seeds):
        rng = np.random.default_rng([seed, 1])
        orders = [rng.permutation(np.array(places[prompt])) for prompt in usable]
        numbers = range(seed, plan.anchors, plan.seeds)
        for n, number in enumerate(numbers):
            which, turn = n % len(usable), n // len(usable)
            place = int(orders[which][turn % len(orders[which])])
            found.append(Anchor(number, seed, usable[which], place))
    return sorted(found, key=lambda a: a.number)


def _places(answer: int, text: Array, stops: frozenset[int]) -> range:
    """Where an anchor can stand: at the text's new tokens but the last, or at that one if it is
    alone; nowhere in a text that ends at once."""
    if int(text[answer]) in stops:
        return range(0)
    return range(answer, max(answer + 1, len(text) - 1))


# ── one anchor ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Branches:
    """Continuations of one anchor as a tree, and the target's p after every row.

    draft  the rows; p  float32 [N, V] after each of them
    paths  per continuation its rows from the root on, as far as the text goes
    """

    draft: Draft
    p: Tensor
    paths: tuple[tuple[int, ...], ...]


def continuations(
    target: Target, root: int, depths: int, count: int, rng: torch.Generator
) -> Branches:
    """Draw ``count`` continuations after ``root``, which the target has not yet run on, at
    temperature 1, deep enough to know p at ``depths`` depths."""
    tokens, parents = [root], [-1]
    rows: list[tuple[int, ...]] = [(0,)] * count
    scores = target.score(tree(tokens, parents))
    for _ in range(depths - 1):
        p = scores.logits.float().softmax(-1).cpu()
        known: dict[tuple[int, int], int] = {}
        for j, path in enumerate(rows):
            above = path[-1]
            if above and tokens[above] in target.stop_ids:
                continue
            token = int(torch.multinomial(p[above], 1, generator=rng))
            if (above, token) not in known:
                known[above, token] = len(tokens)
                tokens.append(token)
                parents.append(above)
            rows[j] = (*path, known[above, token])
        if not known:
            break
        scores = target.score(tree(tokens, parents))
    whole = (p[:-1] if tokens[p[-1]] in target.stop_ids and len(p) > 1 else p for p in rows)
    return Branches(tree(tokens, parents), scores.logits.float().softmax(-1), tuple(whole))


def tree(tokens: Sequence[int], parents: Sequence[int]) -> Draft:
    """A draft for scoring only: its nodes have no ranks and no q."""
    depths = [0]
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)
    nothing = np.zeros(len(tokens), np.float32)
    return Draft(
        tokens=np.array(tokens, np.int64),
        parents=np.array(parents, np.int32),
        depths=np.array(depths, np.int32),
        ranks=nothing.astype(np.int32),
        log_q=nothing,
        scores=nothing,
    )


@torch.inference_mode()
def _rows(
    source: LoadedModels, text: Array, anchor: Anchor, plan: CalibrationPlan
) -> list[dict[str, Any]]:
    """The table's rows of one anchor: for every depth and series the mean over the continuations
    that reach it."""
    before, root = text[: anchor.position].tolist(), int(text[anchor.position])
    depths, count = plan.depths or source.max_depth, plan.continuations
    reading = source.read(before, depths * count + 1)
    reading = replace(reading, tokens=torch.tensor([*before, root], device=reading.tokens.device))
    rng = torch.Generator().manual_seed(anchor.seed * 1_000_003 + anchor.number)
    branches = continuations(source.target, root, depths, count, rng)
    found = [(name, marginal(branches, depths, name == HELD_OUT)) for name in (MARGINAL, HELD_OUT)]
    found += _drafted(source, reading, anchor, branches, depths)
    return _table_rows(anchor, found, branches, depths)


@torch.inference_mode()
def _rows_kept(
    source: LoadedModels, reading: Reading, anchor: Anchor, plan: CalibrationPlan
) -> list[dict[str, Any]]:
    """The same along the text itself."""
    depths = plan.depths or source.max_depth
    tokens = reading.tokens[anchor.position : anchor.position + depths].tolist()
    tokens = [tokens[0], *takewhile(lambda t: t not in source.facts.stop_ids, tokens[1:])]
    logits = reading.logits(anchor.position, anchor.position + len(tokens))
    draft = tree(tokens, range(-1, len(tokens) - 1))
    branches = Branches(draft, logits.float().softmax(-1), (tuple(range(len(tokens))),))
    found = _drafted(source, reading, anchor, branches, depths)
    return _table_rows(anchor, found, branches, depths)


def _drafted(
    source: LoadedModels, reading: Reading, anchor: Anchor, branches: Branches, depths: int
) -> list[tuple[str, list[Numbers]]]:
    found = list[tuple[str, list[Numbers]]]()
    for name, drafter in source.drafters.items():
        (at,) = along(drafter, reading, iter([anchor.position]), 1)
        found.append((name, _numbers(at.session, branches, min(depths, drafter.max_depth))))
    return found


def _table_rows(
    anchor: Anchor, found: Sequence[tuple[str, list[Numbers]]], branches: Branches, depths: int
) -> list[dict[str, Any]]:
    return [
        asdict(anchor) | {"series": name, **row}
        for name, numbers in found
        for row in averaged(numbers, branches, min(depths, len(numbers)))
    ]


def _numbers(session: DraftSession, branches: Branches, depths: int) -> list[Numbers]:
    """By depth, the numbers of every row at it; none where a drafter cannot tell all of q."""
    found: list[Numbers] = [{} for _ in range(depths)]
    for path in branches.paths:
        rows = list(path[:depths])
        if all(row in found[depth] for depth, row in enumerate(rows)):
            continue
        log_q = session.log_q(branches.draft.tokens[rows].tolist())
        if log_q is None:
            return []
        p = branches.p[rows].to(log_q.device)
        far = tvd(log_q.exp(), p).cpu().numpy()
        covered = coverage(*top(log_q, WIDEST), p).cpu().numpy()
        for depth, row in enumerate(rows):
            found[depth][row] = (float(far[depth]), covered[depth])
    return found


Numbers = dict[int, tuple[float, Array]]  # row → its TVD and coverage [16]


def marginal(branches: Branches, depths: int, held_out: bool = False) -> list[Numbers]:
    """The same of the mean of p over the continuations, each cut to its best 256 tokens; ``held
    out``: over the others alone, as deep as two of them reach. A depth without choice has TVD 0.
    """
    found: list[Numbers] = []
    for depth in range(depths):
        at = [path[depth] for path in branches.paths if len(path) > depth]
        rows, counts = np.unique(np.array(at, np.int64), return_counts=True)
        if not len(rows) or (held_out and len(at) < 2):
            break
        p = branches.p[torch.from_numpy(rows).to(branches.p.device)]
        best = top(p, TRUNCATED)
        cut = torch.zeros_like(p).scatter_(1, best.indices, best.values)
        cut /= cut.sum(-1, keepdim=True)
        share = torch.from_numpy(counts / counts.sum()).to(cut)
        mean = (share @ cut).expand_as(p)
        if held_out:
            mean = (len(at) * mean - cut).clamp_min(0) / (len(at) - 1)
        far = tvd(mean, cut).cpu().numpy()
        covered = coverage(*top(mean, WIDEST), p).cpu().numpy()
        found.append({int(row): (float(far[i]), covered[i]) for i, row in enumerate(rows)})
    return found


def averaged(
    numbers: Sequence[Numbers], branches: Branches, depths: int
) -> Iterator[dict[str, Any]]:
    """A row per depth: means over the continuations that reach it."""
    for depth in range(depths):
        at = [path[depth] for path in branches.paths if len(path) > depth]
        if not at:
            return
        far = np.array([numbers[depth][row][0] for row in at])
        covered = np.mean([numbers[depth][row][1] for row in at], axis=0)
        coverages = dict(zip(COVERAGE, covered.tolist(), strict=True))
        yield {"depth": depth + 1, "continuations": len(at), "tvd": float(far.mean()), **coverages}


def _texts(
    source: LoadedModels,
    prompts: Sequence[Sequence[int]],
    plan: CalibrationPlan,
    given: Sequence[Answer],
    report: Steps,
) -> dict[str, Any]:
    """Each prompt with its text, the target's own greedy one or the given one, and a sentence on
    each given one."""
    texts, said = [], []
    for number, prompt in enumerate(prompts):
        report(0.0, f"text {number + 1} of {len(prompts)}")
        count, rule = plan.new_tokens, TargetTokens(GREEDY)
        if given:
            given[number].check(source.facts.vocabulary)
            count, rule = min(count, len(given[number].tokens)), Follows(given[number], len(prompt))
        settings = Settings(1, count, GREEDY, timed=False)
        decoder = Decoder(PLAIN, rule=lambda _, rule=rule: rule)
        text = new_tokens(list(decode(source.target, decoder, prompt, settings)))
        texts.append([int(token) for token in (*prompt, *text)])
        if isinstance(rule, Follows):
            said.append(rule.found(len(text)).sentence(len(text)))
    return {"texts": texts, "said": said}


def _told(
    source: LoadedModels,
    kept: Sequence[Callable[[], Reading]],
    prompts: Sequence[Sequence[int]],
    plan: CalibrationPlan,
    given: Sequence[Answer],
    report: Steps,
) -> dict[str, Any]:
    """The same of texts that were read elsewhere, as far as the first stop token."""
    texts, said = [], []
    for number, (prompt, answer, read) in enumerate(zip(prompts, given, kept, strict=True)):
        report(0.0, f"text {number + 1} of {len(prompts)}")
        stops = (n for n, t in enumerate(answer.tokens, 1) if t in source.facts.stop_ids)
        count = min(plan.new_tokens, next(stops, len(answer.tokens)))
        texts.append([int(token) for token in (*prompt, *answer.tokens[:count])])
        said.append(told(read(), answer, count).sentence(count))
    return {"texts": texts, "said": said}


def given_texts(folder: Path) -> list[str]:
    """A sentence on each given text of a measurement; none where the target wrote them."""
    return [str(said) for said in Journal(folder / FILE).get("texts")["said"]]
