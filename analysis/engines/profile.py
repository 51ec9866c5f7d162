"""``speculation_profile.json``: the acceptance of a draft checkpoint, to lie beside it. No torch.

Schema 1.0 of NVIDIA's Model-Optimizer. It counts an *acceptance length* of each verification, the
accepted tokens and the bonus token, so that length 1 accepted nothing. *Marginal* at place i is the
share of all verifications that accepted places 1 … i, *conditional* the share of those that
accepted all before. Deployment simulators read one or the other.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

from msgspec import Meta, Struct

from analysis.measures.counts import Served, by_length, reached
from core.declared import BadField, Count, Number, Share
from core.errors import UserError
from core.rounds.draft import Draft
from core.rounds.round import Round
from core.traces.schema import Header, Trace

NAME = "speculation_profile.json"
SCHEMA = "1.0"
ROUNDED = 0.02  # by which the schema lets a mean and its shares differ
MAX_PLACES = 1 << 10

Length = Annotated[int, Meta(ge=1, le=MAX_PLACES)]


class Profile(Struct):
    """A profile; its other fields say what was measured where."""

    schema_version: str
    measured: bool
    num_speculative_tokens: Annotated[int, Meta(ge=1, le=MAX_PLACES)]
    marginal_accept_rates: Annotated[list[Share], Meta(max_length=MAX_PLACES)]
    mean_accept_length: Number | None = None
    acceptance_length_histogram: dict[Length, Count] | None = None

    def served(self, response: dict[str, Any]) -> Served:
        """The profile as counts. Raises BadField for one that is empty or contradicts itself."""
        if not self.schema_version.startswith("1."):
            raise BadField("schema_version is not 1, the only one that is known")
        if not self.measured:
            raise BadField("the profile is a placeholder: nothing was measured")
        rates = self.marginal_accept_rates
        if any(b > a + 1e-6 for a, b in pairwise(rates)):
            raise BadField("its shares by place rise")
        mean = self.mean_accept_length
        if mean is not None and mean < 1 + sum(rates) - ROUNDED:
            raise BadField("mean_accept_length is below what its shares by place add up to")
        lengths = self.acceptance_length_histogram
        if not lengths or not sum(lengths.values()):
            if not rates and mean is None:
                raise BadField("it tells neither shares by place nor lengths")
            return Served(NAME, rates=tuple(rates) or None, mean=mean or 1 + sum(rates))
        rounds = sum(lengths.values())
        if max(lengths) > self.num_speculative_tokens + 1:
            raise BadField("its histogram has lengths above num_speculative_tokens + 1")
        histogram = by_length({length - 1: count for length, count in lengths.items()})
        kept = reached(histogram, self.num_speculative_tokens)
        shares = [each / rounds for each in kept]
        if any(abs(a - b) > ROUNDED for a, b in zip(shares, rates, strict=False)):
            raise BadField("its shares by place are not those of its histogram")
        own = sum(length * count for length, count in lengths.items()) / rounds
        if mean is not None and abs(mean - own) > ROUNDED * own:
            raise BadField("its mean_accept_length is not that of its histogram")
        accepted = sum((length - 1) * count for length, count in lengths.items())
        return Served(NAME, rounds, None, accepted, histogram=histogram, places=kept)


def made(traces: Sequence[Trace]) -> dict[str, Any]:
    """The profile of some runs of one drafter on one target.

    A step of it is a sound round that committed something. Raises UserError, one sentence, where
    the runs are not of one drafter, none drafted, or a rule accepted that no profile names.
    """
    _check_one_drafter([trace.header for trace in traces])
    runs = [[r for r in trace.sound if r.committed] for trace in traces]
    rounds = [r for run in runs for r in run]
    if any(r.block is not None for r in rounds):
        raise UserError("a profile is of drafts that are verified token by token, not of denoising")
    if marked := next((trace.mark for trace in traces if trace.mark and not rounds), ""):
        raise UserError(f"no round of these runs counts: {marked}")
    places = max((_depth(r) for r in rounds), default=0)
    if not places:
        raise UserError("nothing was drafted in these runs: there is no profile to make")
    return {
        **_described(traces[0].header, rounds, places),
        **_rates(runs, places),
        "per_category": None,
        "measurement_conditions": _conditions(traces[0].header, runs),
        "validation": None,  # both of its checks hold of any counts: nothing would be checked
    }


def _check_one_drafter(headers: Sequence[Header]) -> None:
    """Raises UserError where runs differ in what a profile is of, or it cannot name their rule."""
    from analysis.measures.outstanding import FLY, SIMULATED  # pandas loads with it

    rules = [str(each.settings.get("rule", "")) for each in headers]
    for what, values in (
        ("methods", [each.method for each in headers]),
        ("targets", [str(each.model.get("name", "")) for each in headers]),
        ("drafters", [str(each.drafter.get("checkpoint", "")) for each in headers]),
        ("budgets", [str(each.settings.get("budget")) for each in headers]),
        ("ways of sampling", [str(_sampling(each.settings)) for each in headers]),
        ("rules", rules),
    ):
        if len(set(values)) > 1:
            raise UserError(
                f"a profile is of one drafter: these runs have {len(set(values))} {what}"
            )
    if SIMULATED in rules:
        raise UserError("acceptance was simulated in these runs: a profile tells what was measured")
    if FLY in rules:
        raise UserError("FLy accepted in these runs: a profile tells of longest prefix and block")


def _depth(record: Round) -> int:
    """The deepest node that may be accepted: not of rows that are scored for the drafter alone."""
    draft = record.draft
    side = draft.side if isinstance(draft, Draft) else ()
    return max(depth for row, depth in enumerate(draft.depths.tolist()) if row not in side)


def _described(header: Header, rounds: Sequence[Round], places: int) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA,
        "measured": True,
        "producer": "draftscope",
        "method": header.method,
        "draft_checkpoint": _named(header.drafter.get("checkpoint")),
        "target_model": _named(header.model.get("name")),
        "num_speculative_tokens": places,
        "max_supported_k": max(places, *(r.max_depth for r in rounds)),
        "verification_method": "block" if _whole_block(header.settings) else "longest_prefix",
    }


def _rates(runs: Sequence[Sequence[Round]], places: int) -> dict[str, Any]:
    """Shares by place and accepted lengths, over all rounds of all runs."""
    rounds = [r for run in runs for r in run]
    lengths = Counter(r.accepted + 1 for r in rounds)
    marginal = [sum(r.accepted >= n for r in rounds) / len(rounds) for n in range(1, places + 1)]
    mean = 1 + sum(marginal)
    means = [sum(r.accepted + 1 for r in run) / len(run) for run in runs if run]
    return {
        "conditional_accept_rates": [
            round(now / then, 6) if then else 0.0
            for then, now in zip([1.0, *marginal], marginal, strict=False)
        ],
        "marginal_accept_rates": [round(each, 6) for each in marginal],
        "mean_accept_length": round(mean, 6),
        "mean_accept_length_per_request": round(sum(means) / len(means), 6),
        "accept_length_model": "measured_per_k",  # another length begins rounds at other tokens
        "accept_length_by_k": {str(places): round(mean, 6)},
        "acceptance_length_histogram": {str(n): lengths[n] for n in sorted(lengths)},
    }


def _conditions(header: Header, runs: Sequence[Sequence[Round]]) -> dict[str, Any]:
    rounds = [r for run in runs for r in run]
    return {
        "num_samples": sum(map(bool, runs)),
        "num_steps": len(rounds),
        "drafts": "trees" if any(max(map(len, r.draft.children)) > 1 for r in rounds) else "chains",
        "budget": header.settings.get("budget"),
        "sampling": _sampling(header.settings),
        "dtype": header.dtype or None,
    }


def profile_bytes(traces: Sequence[Trace]) -> bytes:
    return (json.dumps(made(traces), indent=2, allow_nan=False) + "\n").encode()


def _named(path: object) -> dict[str, str] | None:
    """A checkpoint by the last two parts of its path: the rest is of one machine only."""
    parts = [part for part in str(path or "").replace("\\", "/").split("/") if part]
    return {"name": "/".join(parts[-2:])} if parts else None


def _sampling(settings: Any) -> dict[str, Any] | None:
    """How the target chooses; texts may have seeds of their own."""
    told = settings.get("sampling")
    return {n: x for n, x in told.items() if n != "seed"} if isinstance(told, dict) else None


def _whole_block(settings: Any) -> bool:
    options = settings.get("options")
    chosen = options.get("block") if isinstance(options, dict) else None
    return chosen is True or settings.get("rule") == "block"
