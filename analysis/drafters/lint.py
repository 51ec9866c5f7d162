"""What a checkpoint's file shows without running it, and what that does to acceptance.

Every remark is a sentence. Those that are ``wrong`` explain a bad drafter; the others are facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from analysis.drafters.computed_mistakes import target_theta
from core.models import checkpoint
from core.models.language import Language
from core.rounds.draft import Array

SMALL = 1e-3  # of the median row's length: such a row is as good as zero
ODD = 30.0  # times the median gain
SHOWN = 3  # names in a sentence
TIED = 1e-2  # relative difference that rounding to bf16 or int8 explains
HEADS, EMBEDDINGS = ("lm_head.weight",), ("embed_tokens.weight",)


@dataclass(frozen=True)
class Remark:
    """``wrong``: it costs acceptance, or may."""

    wrong: bool
    text: str

    def __str__(self) -> str:
        return self.text


def lint(form: Any, folder: Path, language: Language) -> list[Remark]:
    """Remarks on the checkpoint in a folder, of the kind that ``form`` reads, for a target.

    Raises UserError where its config or files cannot be read.
    """
    made, found = checkpoint.shapes(form.outline(folder)), form.read_shapes(folder)
    remarks = list(_keys(made, found))
    state = dict[str, Tensor]()
    for part in form.folders(folder):
        state |= checkpoint.read_state(part)
        remarks += _precision(part)
    state = {name: t for name, t in state.items() if name not in getattr(form, "unread", ())}
    remarks += _values(state)
    remarks += _shared(state, language)
    remarks += _config(form.load_config(folder), language)
    return remarks


def _keys(made: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Remark]:
    if missing := sorted(made.keys() - found.keys()):
        yield Remark(
            True, f"{_are(missing)} missing: other engines may fill them with random numbers"
        )
    if unread := sorted(found.keys() - made.keys()):
        yield Remark(True, f"{_are(unread)} read by nothing: the drafter runs without that part")
    for name in sorted(made.keys() & found.keys()):
        if made[name] != found[name]:
            yield Remark(True, f"{name} has shape {found[name]}, its config says {made[name]}")


def _named(names: list[str]) -> str:
    """The first of them."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _are(names: list[str]) -> str:
    return f"{_named(names)} {'is' if len(names) == 1 else 'are'}"


def _precision(folder: Path) -> Iterator[Remark]:
    """Types of the stored numbers, from the files' headers."""
    counts: dict[str, int] = {}
    for file in checkpoint.weight_files(folder):
        with safe_open(file, "pt") as stored:
            for name in stored.keys():  # noqa: SIM118 (it is no dict)
                entry = stored.get_slice(name)
                kind = str(entry.get_dtype())
                counts[kind] = counts.get(kind, 0) + int(np.prod(entry.get_shape()))
    total = max(1, sum(counts.values()))
    shares = ", ".join(f"{kind} {count / total:.0%}" for kind, count in sorted(counts.items()))
    eighth = any(kind.startswith(("I8", "F8")) for kind in counts)
    effect = "compare τ with the unquantised file" if eighth else "nothing is lost by its precision"
    yield Remark(False, f"weights of {folder.name} are stored as {shares}: {effect}")


def _values(state: Mapping[str, Tensor]) -> Iterator[Remark]:
    """Numbers that no training leaves behind."""
    norms, lost, unused = dict[str, Tensor](), list[str](), list[str]()
    for name, tensor in sorted(state.items()):
        if not tensor.is_floating_point():
            continue
        values = tensor.float()
        if not values.isfinite().all():
            yield Remark(True, f"{name} holds NaN or infinity: nothing after it can be right")
        elif not values.any():
            (unused if name.endswith("bias") else lost).append(name)
        elif values.ndim == 2:
            yield from _rows(name, values)
        elif values.ndim == 1 and "norm" in name:
            norms[name] = values
    if lost:
        yield Remark(True, f"{_are(lost)} all zero: what is computed there is lost")
    if unused:
        yield Remark(False, f"{_are(unused)} all zero: not trained, or not saved")
    yield from _gains(norms)


def _rows(name: str, matrix: Tensor) -> Iterator[Remark]:
    lengths = matrix.norm(dim=1)
    none = int((lengths < SMALL * lengths.median()).sum())
    if none and name in HEADS:
        effect = "these tokens get one logit, whatever the text"
    elif none and name in EMBEDDINGS:
        effect = "these tokens look alike to it; a mask among them makes all depths alike"
    else:
        effect = "these outputs are dead"
    if none:
        yield Remark(True, f"{none} of {len(lengths)} rows of {name} are near zero: {effect}")


def _gains(norms: Mapping[str, Tensor]) -> Iterator[Remark]:
    """One remark on all norms of a kind: what was done to one was often done to all."""
    plain = [name for name, gains in norms.items() if torch.equal(gains, torch.ones_like(gains))]
    negative = [name for name, gains in norms.items() if (gains < 0).float().mean() > 0.2]
    if plain:
        yield Remark(False, f"all gains of {_named(plain)} are 1: not trained, or not saved")
    if negative:
        text = f"many gains of {_named(negative)} are negative: it may hold gain − 1, as Gemma's do"
        yield Remark(True, text)
    for name, gains in norms.items():
        size = gains.abs()
        if name not in negative and size.max() > ODD * size.median():
            yield Remark(
                False,
                f"a gain of {name} is {float(size.max() / size.median()):.0f} times the median: "
                "low precision costs most there",
            )


def _shared(state: Mapping[str, Tensor], language: Language) -> Iterator[Remark]:
    """Whether head and embedding are the target's."""
    own: Any = language.model.get_input_embeddings()
    for names, what, theirs in (
        (HEADS, "head", getattr(language.model.get_output_embeddings(), "weight", None)),
        (EMBEDDINGS, "embedding", own.weight),
    ):
        name = next((name for name in names if name in state), None)
        if name is None:
            yield Remark(False, f"it has no {what} of its own and uses the target's")
            continue
        mine = state[name].float()
        if theirs is None or theirs.shape != mine.shape:
            yield Remark(False, f"it has a {what} of its own, over {len(mine)} tokens")
            continue
        away = float((mine - theirs.float().cpu()).norm() / theirs.float().norm().cpu())
        if away < TIED:
            yield Remark(False, f"its {what} is a copy of the target's")
        elif what == "embedding":
            yield Remark(
                True,
                f"its embedding differs from the target's by {away:.0%} of its length, and the "
                "target's is used: what training changed there is lost",
            )
        else:
            yield Remark(False, f"its {what} is its own: {away:.0%} away from the target's")


def _config(config: Any, language: Language) -> Iterator[Remark]:
    """What the config says against what the target is."""
    mask = getattr(config, "mask_token_id", None)
    if mask is not None:
        table: Any = language.model.get_input_embeddings()
        rows = table.weight.float()
        length = float(rows[mask].norm() / rows.norm(dim=1).median())
        if length < 0.05:
            text = f"the mask token {mask} has an embedding {length:.2g} times the median's length"
            yield Remark(True, f"{text}: norms blow it up, and rounding decides what depths say")
    rope, theta = getattr(config, "rope", None), target_theta(language)
    if rope is not None and theta is not None and rope.theta != theta:
        yield Remark(
            False,
            f"its rope_theta is {rope.theta:g} and the target's {theta:g}: right if so trained",
        )
    told = getattr(config, "max_position_embeddings", None), getattr(rope, "limit", None)
    longest = min((length for length in told if length), default=None)
    limit = getattr(language.model.config.get_text_config(), "max_position_embeddings", None)
    if longest and limit and longest < limit:
        yield Remark(
            False, f"it is made for {longest} positions and the target for {limit}: beyond "
            f"{longest} acceptance may fall",
        )  # fmt: skip


def covered(ids: Tensor | None, mean_p: Array, used: Array) -> list[Remark]:
    """How much of the target's text a head over some tokens can draft.

    ids     int64 [C], the head's tokens; None: all
    mean_p  [V], the mean of p over a text's places; ``used`` [V]: how often each token is in it
    """
    if ids is None:
        return [Remark(False, "its head covers the whole vocabulary")]
    some = ids.cpu().numpy()
    mass, share = float(mean_p[some].sum()), float(used[some].sum() / max(1, used.sum()))
    text = (
        f"its draft vocabulary of {len(some)} tokens covers {share:.1%} of the text's tokens and "
        f"{mass:.1%} of p: no depth can accept more often than that"
    )
    return [Remark(share < 0.95, text)]


def head_ids(drafter: Any) -> Tensor | None:
    """The target's token of each row of a drafter's head; None: it covers all."""
    for name in ("covered", "head"):
        if isinstance(found := getattr(getattr(drafter, name, None), "ids", None), Tensor):
            return found
    return None
