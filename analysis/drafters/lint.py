"""Examine a checkpoint's file without running it, and say what its faults do to acceptance.

Every remark is a sentence. Those that are ``wrong`` explain a bad drafter; the others are facts.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from analysis.drafters.patches import target_theta
from analysis.drafters.rounding import COARSE, mantissa_bits
from analysis.numbers import percent, share
from core.errors import UserError
from core.models import checkpoint
from core.models.language import Language
from core.rounds.draft import Array
from core.stats import wilson
from core.tensor_files import open_tensors

SMALL = 1e-3  # of the rows' length (root mean square): such a row is as good as zero
ODD = 30.0  # times the median gain
UNLIKE = 16.0  # times the median matrix, in root mean square; of those that train, 3
SHOWN = 3  # names in a sentence
TIED = 1e-2  # relative difference that rounding to bf16 or int8 explains
HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"
FEW_BITS = ("I8", "U8", "F8")  # how safetensors' names of types of eight bits begin
MAPS = ("BOOL", "I32", "I64")  # types of token maps


@dataclass(frozen=True)
class Remark:
    """``wrong``: it costs acceptance, or may."""

    wrong: bool
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Lint:
    """``dead``: the rows of the head that is read from the file which are near zero."""

    remarks: tuple[Remark, ...] = ()
    dead: tuple[int, ...] = ()


def lint(form: checkpoint.DrafterForm[Any], folder: Path, language: Language) -> Lint:
    """Look through the checkpoint in a folder, of the kind that ``form`` reads, for a target.

    Raises UserError where its config or files cannot be read.
    """
    made, found = checkpoint.shapes(form.outline(folder)), form.read_shapes(folder)
    remarks, config = list(_keys(made, found)), form.load_config(folder)
    wanted = form.wanted(folder, config)
    state = dict[str, Tensor]()
    for part in form.folders(folder):
        own = checkpoint.read_state(part, wanted)
        remarks += _precision(part, own, wanted)
        state |= own
    state = {name: t for name, t in state.items() if name not in form.unread}
    norm = language.model.get_decoder().norm
    remarks += _values(state, int(form.targets_norms and _adds_one(norm)))
    remarks += _maps(state.get("d2t"), state.get("t2d"), language.vocabulary)
    read = EMBEDDING in made  # it is a part of the network
    remarks += _tables(state, folder, language, read)
    head = state.get(HEAD)
    remarks += _config(config, language, state.get(EMBEDDING) if read else None)
    reads = hasattr(config, "draft_vocab_size")  # others draft with the target's head
    dead = _dead(head).nonzero().flatten().tolist() if head is not None and reads else ()
    return Lint(tuple(remarks), tuple(dead))


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
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _are(names: list[str]) -> str:
    return f"{_named(names)} {'is' if len(names) == 1 else 'are'}"


def _precision(
    folder: Path, state: Mapping[str, Tensor], wanted: Callable[[str], bool] | None
) -> Iterator[Remark]:
    """Types of the stored numbers, from the files' headers, and how finely the numbers differ.
    ``wanted``: as for ``checkpoint.read_state``."""
    sizes = Counter[str]()
    for file in checkpoint.weight_files(folder):
        with open_tensors(file, checkpoint.OF_WEIGHTS) as opened:
            for name, entry in opened.entries.items():
                if (wanted is None or wanted(name)) and entry.dtype not in MAPS:
                    sizes[entry.dtype] += math.prod(entry.shape)
    total = max(1, sizes.total())
    shares = ", ".join(f"{kind} {percent(count / total)}" for kind, count in sorted(sizes.items()))
    told = f"weights of {folder.name} are stored as {shares}: "
    if any(kind.startswith(FEW_BITS) for kind in sizes):
        yield Remark(False, told + "compare τ with the unquantised file")
        return
    matrices = [t for t in state.values() if t.ndim == 2 and t.is_floating_point()]
    measured = [(each.numel(), mantissa_bits(each)) for each in matrices]
    yield Remark(False, told + _rounding([(n, b) for n, b in measured if b is not None]))


def _rounding(measured: Sequence[tuple[int, float]]) -> str:
    """Whether matrices were rounded before they were stored: the size and mantissa bits of each."""
    if not measured:
        return "too few numbers to tell whether they were rounded to fewer bits"
    coarse = [(n, bits) for n, bits in measured if bits < COARSE]
    if not coarse:
        return "the numbers show no rounding to fewer bits"
    size = sum(n for n, _ in coarse)
    bits, part = sum(n * bits for n, bits in coarse) / size, size / sum(n for n, _ in measured)
    return (
        f"{percent(part)} of the numbers in matrices repeat as those with {bits:.1f} bits of "
        "mantissa do, and bf16 has 7. They look rounded to eight bits or fewer before they were "
        "stored: compare τ with the file before that"
    )


def _adds_one(norm: Any) -> bool:
    """Whether a norm multiplies by its weight + 1, as Gemma's and Qwen3.5's do."""
    made = copy.deepcopy(norm).to_empty(device="cpu")
    nn.init.zeros_(made.weight)
    return bool(made(torch.ones_like(made.weight)).any())


def _values(state: Mapping[str, Tensor], added: int = 0) -> Iterator[Remark]:
    """Numbers that no training leaves behind. ``added``: what its norms add to their weights."""
    norms, lost, unused = dict[str, Tensor](), list[str](), list[str]()
    sizes = dict[str, float]()
    for name, tensor in sorted(state.items()):
        if not tensor.is_floating_point():
            continue
        gain = tensor.ndim == 1 and "norm" in name
        values = tensor.float() + added if gain else tensor.float()
        if not values.isfinite().all():
            yield Remark(True, f"{name} holds NaN or infinity: nothing after it can be right")
        elif not values.any():
            (unused if name.endswith("bias") else lost).append(name)
        elif values.ndim == 2 and name not in (HEAD, EMBEDDING):
            sizes[name] = float(values.square().mean().sqrt())
            if (some := _dead(values)).any():
                text = f"{_rows(some)} of {name} are near zero: these outputs are dead"
                yield Remark(True, text)
        elif gain:
            norms[name] = values
    if lost:
        yield Remark(True, f"{_are(lost)} all zero: what is computed there is lost")
    if unused:
        yield Remark(False, f"{_are(unused)} all zero: not trained, or not saved")
    yield from _gains(norms)
    yield from _scales(sizes)


def _dead(matrix: Tensor) -> Tensor:
    """The rows that are as good as zero, bool [n]."""
    lengths = matrix.float().norm(dim=1)
    return lengths <= SMALL * _typical(lengths)


def _typical(lengths: Tensor) -> Tensor:
    """Root mean square: a median is zero once half of them are."""
    return lengths.square().mean().sqrt()


def _rows(some: Tensor) -> str:
    at = some.nonzero().flatten().tolist()
    together = len(at) > SHOWN and at[-1] - at[0] == len(at) - 1
    which = f"{at[0]} to {at[-1]}" if together else _named([str(row) for row in at])
    return f"{len(at)} of {len(some)} rows ({which})"


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


def _scales(sizes: Mapping[str, float]) -> Iterator[Remark]:
    """Matrices whose numbers are far smaller or larger than the others'; ``sizes``: root mean
    square by name. A fact: training may have left it so, and a norm behind one undoes it."""
    middle = float(np.median([*sizes.values()])) if sizes else 0.0
    for word, times in (
        ("smaller", {name: middle / size for name, size in sizes.items()}),
        ("larger", {name: size / middle for name, size in sizes.items()}),
    ):
        if odd := {name: by for name, by in times.items() if by >= UNLIKE}:
            yield Remark(
                False,
                f"the numbers of {_named([*odd])} are {min(odd.values()):.0f} times {word} than "
                "those of its median matrix, or more: right if trained so",
            )


def _weight(module: Any) -> Tensor | None:
    return getattr(module, "weight", None)


def _target_head(language: Language) -> Tensor | None:
    """The target's head [V, h]; None where it is packed and not tied to the embedding."""
    head = _weight(language.model.get_output_embeddings())
    tied = getattr(language.model.config.get_text_config(), "tie_word_embeddings", False)
    return _weight(language.embedding) if head is None and tied else head


def _maps(d2t: Tensor | None, t2d: Tensor | None, vocabulary: int) -> Iterator[Remark]:
    """A head's token maps: what is added to each row's number [C], and a mask of tokens [V]."""
    marked: set[int] | None = None
    if t2d is not None and t2d.ndim == 1 and bool(((t2d == 0) | (t2d == 1)).all()):
        marked = set(t2d.nonzero().flatten().tolist())
    elif t2d is not None:
        text = f"t2d is {_kind(t2d)}, not a mask over the vocabulary: it was not compared with d2t"
        yield Remark(False, text)
    if d2t is None:
        if marked is not None and marked != set(range(len(marked))):
            text = f"d2t is missing, and t2d marks other tokens than the first {len(marked)}"
            yield Remark(True, text)
    elif d2t.ndim != 1 or d2t.is_floating_point():
        yield Remark(True, f"d2t is {_kind(d2t)}: it should hold an integer for each row")
    elif checkpoint.holds_tokens(d2t, t2d, vocabulary):
        told = " that t2d marks" if marked is not None else ""
        yield Remark(
            True,
            f"d2t holds the token ids{told}: readers add the row's number. What follows is "
            "measured with d2t[i] − i",
        )
    else:
        yield from _named_by(d2t.long(), marked, vocabulary)


def _named_by(d2t: Tensor, marked: set[int] | None, vocabulary: int) -> Iterator[Remark]:
    """The tokens that d2t names, beside those that t2d marks, if these are known."""
    ids = torch.arange(len(d2t)) + d2t
    named, count = set(ids.tolist()), len(ids)
    if outside := int(((ids < 0) | (ids >= vocabulary)).sum()):
        yield Remark(True, f"d2t leads {outside} of {count} rows outside the vocabulary")
    if twice := count - len(named):
        yield Remark(True, f"d2t gives {twice} of {count} rows the token of another row")
    if named == marked:
        yield Remark(False, f"its token maps d2t and t2d name the same {len(named)} tokens")
    elif marked is not None:
        yield Remark(
            True,
            f"its token maps contradict each other: d2t names {len(named - marked)} tokens that "
            f"t2d leaves out, and t2d marks {len(marked - named)} that d2t lacks. d2t is used here",
        )


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _tables(
    state: Mapping[str, Tensor], folder: Path, language: Language, read: bool
) -> Iterator[Remark]:
    """Head and embedding beside the target's. ``read``: whether the drafter reads the embedding."""
    head, embedding, ids = state.get(HEAD), state.get(EMBEDDING), None
    if head is not None:
        with suppress(UserError):  # the remarks on the token maps have said it
            maps = state.get("d2t"), len(head), language.vocabulary, folder, state.get("t2d")
            ids = checkpoint.covered(*maps)
        yield from _shared("head", head, _target_head(language), ids)
    if embedding is not None:
        yield from _shared("embedding", embedding, _weight(language.embedding), None, read)
    others = [t for name, t in state.items() if t.ndim == 2 and name not in (HEAD, EMBEDDING)]
    if any(len(each) == language.vocabulary for each in others):
        return  # it may be one by another name: a head of Medusa's, a draft model's embedding
    for what, mine in (("head", head), ("embedding", embedding)):
        if mine is None:
            yield Remark(False, f"it has no {what} of its own and uses the target's")


LOOK_ALIKE = {
    "head": "these tokens get one logit, whatever the text",
    "embedding": "these tokens look alike to it; a mask among them makes all depths alike",
}


def _shared(
    what: str, mine: Tensor, theirs: Tensor | None, ids: Tensor | None, read: bool = True
) -> Iterator[Remark]:
    """Whether head or embedding is the target's, and which of its rows are dead.

    ids   int64 [C]: the target's token of each row; None: the same
    read  whether the drafter reads it, and not the target's
    """
    mine, theirs = mine.float(), None if theirs is None else theirs.detach().float().cpu()
    if theirs is not None and ids is not None:
        theirs = theirs[ids]
    fits = theirs is not None and len(theirs) == len(mine)
    dead = _dead(mine)
    # a target's unused tokens are near zero in it too, and cost nothing
    alone = dead & ~_dead(theirs) if theirs is not None and fits else dead
    for some, wrong, more in ((alone, True, ""), (dead & ~alone, False, ", as the target's are")):
        if some.any() and mine.any():
            yield Remark(
                wrong, f"{_rows(some)} of its {what} are near zero{more}: {LOOK_ALIKE[what]}"
            )
    if theirs is None or theirs.shape != mine.shape:
        yield Remark(False, f"it has a {what} of its own, over {len(mine)} tokens")
        return
    away = float((mine - theirs).norm() / theirs.norm())
    if away < TIED:
        yield Remark(False, f"its {what} is a copy of the target's")
    elif not read:
        yield Remark(
            True,
            f"its {what} differs from the target's by {percent(away)} of its length, and the "
            "target's is used: what training changed there is lost",
        )
    else:
        yield Remark(False, f"its {what} is its own: {percent(away)} away from the target's")


def _config(config: Any, language: Language, embedding: Tensor | None) -> Iterator[Remark]:
    """Compare the config with the target: mask token, rope, longest context. ``embedding``: the
    drafter's own, where it reads one."""
    mask = getattr(config, "mask_token_id", None)
    if mask is not None:
        table: Any = language.model.get_input_embeddings()
        lengths = (table.weight if embedding is None else embedding).float().norm(dim=1)
        length = float(lengths[mask] / _typical(lengths))
        if length < 0.05:
            text = f"the mask token {mask} has an embedding {length:.2g} times as long as others"
            yield Remark(True, f"{text}: norms blow it up, and rounding decides what depths say")
    rope, target = getattr(config, "rope", None), language.model.config.get_text_config()
    for name, own, theirs in (
        ("rope_theta", getattr(rope, "theta", None), target_theta(language)),
        ("rms_norm_eps", *(getattr(each, "rms_norm_eps", None) for each in (config, target))),
    ):
        if own and theirs and not math.isclose(own, theirs, rel_tol=0.01):
            says = f"its {name} is {own:g} and the target's {theirs:g}: right if trained so"
            yield Remark(False, says)
    told = getattr(config, "max_position_embeddings", None), getattr(rope, "limit", None)
    longest = min((length for length in told if length), default=None)
    limit = getattr(target, "max_position_embeddings", None)
    if longest and limit and longest < limit:
        yield Remark(
            False, f"it is made for {longest} positions and the target for {limit}: beyond "
            f"{longest} acceptance may fall",
        )  # fmt: skip


def covered(
    ids: Tensor | None,
    mean_p: Array,
    used: Array,
    dead: Sequence[int] = (),
    whose: str = "the text's",
) -> list[Remark]:
    """How much of the target's text a drafter can draft: a fact of both, and no verdict.

    ids     int64 [C], the tokens that it drafts; None: all
    mean_p  [V], the mean of p over a text's places; ``used`` [V]: how often each token is in it
    dead    rows of the head that are near zero: they count as not covered
    whose   which text's or texts' tokens they are, in words
    """
    if ids is None and not dead:
        return [Remark(False, "it drafts every token of the vocabulary")]
    every = np.arange(len(mean_p)) if ids is None else ids.cpu().numpy()
    some = np.unique(np.delete(every, list(dead)))
    hits, n = int(used[some].sum()), int(used.sum())
    low, high = (float(bound) for bound in wilson(hits, n))
    left_out = f" (not counting {len(dead)} near zero)" if dead else ""
    never = "" if ids is None else "; the others are never drafted"
    text = (
        f"it drafts {len(every)} of the target's tokens{left_out}. They cover {hits} of "
        f"{whose} {n} tokens ({share(hits / max(1, n))}, 95 % interval {share(low)} to "
        f"{share(high)}) and {share(float(mean_p[some].sum()))} of p{never}"
    )
    return [Remark(False, text)]
