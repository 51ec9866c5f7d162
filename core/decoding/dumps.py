"""Hidden states of a target that a trainer or an engine kept: speculators' ``hs_*.safetensors`` and
what vLLM's ``extract_hidden_states`` writes.

A file holds one text: ``token_ids`` [T] and ``hidden_states`` [T, n, h]. The last entry is the last
layer's output before the final norm, so the target's p takes only its final norm and head
(``core.models.ends``). The file does not say which layers the others are: they are a drafter's, or
named as vLLM was told (its number i is the output of layer i − 1, and 0 the embedding).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from core.decoding.along import Reading
from core.errors import UserError
from core.models.checkpoint import read_tensor
from core.models.language import MARKER, Language, final_norm, last_layer
from core.models.readout import entering
from core.tensor_files import open_tensors

PICKLES = (".ckpt", ".pt", ".pth", ".bin")


@dataclass(frozen=True, eq=False)
class Dump:
    """One text of a file: ``tokens`` int64 [T] and ``states`` [T, n, h]."""

    path: Path
    tokens: Tensor
    states: Tensor

    @property
    def name(self) -> str:
        return self.path.name


def dump_files(paths: Sequence[Path]) -> list[Path]:
    """Files, and all in folders, sorted by name. Raises UserError for a folder without any and for
    a file that could run code."""
    found = list[Path]()
    for path in paths:
        own = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
        pickled = path.suffix in PICKLES or any(path.glob("*.ckpt")) if not own else False
        if pickled or path.suffix in PICKLES:
            raise UserError(
                f"{path} holds pickles, which can run code when they are read: load them in the "
                "trainer and save token_ids and hidden_states with safetensors.torch.save_file"
            )
        if not own:
            raise UserError(f"{path} holds no hidden states (*.safetensors)")
        found += own
    return found


def read_dump(path: Path) -> Dump:
    """Raises UserError for a file that is missing, damaged or holds something else."""
    with open_tensors(path, "a file of hidden states") as opened:
        if not {"token_ids", "hidden_states"} <= set(opened.entries):
            raise UserError(f"{path} holds no token_ids and hidden_states")
        tokens, states = (read_tensor(opened, name) for name in ("token_ids", "hidden_states"))
    tokens = tokens.flatten() if tokens.ndim == 2 and len(tokens) == 1 else tokens
    whole = tokens.ndim == 1 and not (tokens.is_floating_point() or tokens.is_complex())
    if not (whole and states.ndim == 3 and states.is_floating_point()):
        raise UserError(f"{path}: its shapes are not token_ids [T] and hidden_states [T, n, h]")
    if len(tokens) != len(states) or not states.shape[1] or len(tokens) < 2:
        raise UserError(
            f"{path} holds {len(tokens)} tokens and {states.shape[1]} states of {len(states)}"
        )
    return Dump(path, tokens.long(), states)


def reading_of(
    dump: Dump,
    language: Language,
    drafted: Sequence[int] = (),
    named: Sequence[int] | None = None,
    answer: int | None = None,
) -> Reading:
    """A dumped text as one that the target read here.

    drafted  layers that the drafters read
    named    what the dumped states are, in vLLM's numbers; None: those of the drafters, ascending,
             and the last
    answer   index of the answer's first token; None: after the last words with which the chat
             template begins an answer

    Raises UserError for states of another target or of layers that are not known.
    """
    last, vocabulary = last_layer(language.model), language.vocabulary
    if not 0 <= int(dump.tokens.min()) <= int(dump.tokens.max()) < vocabulary:
        raise UserError(f"{dump.path} holds tokens that the target {language.name!r} has not")
    if (width := dump.states.shape[2]) != (own := _width(language)):
        raise UserError(
            f"{dump.path} holds states of {width} numbers, and the target {language.name!r} has "
            f"states of {own}"
        )
    layers = _layers(dump, last, drafted, named)
    states = dump.states.to(language.device, language.model.dtype)
    tokens, before = dump.tokens.to(language.device), states[:, -1]
    norm, config = final_norm(language), language.model.config
    if norm is None:
        raise UserError(f"the final norm of {language.name!r} is not known")
    with torch.inference_mode():
        known = {-1: entering(config, language.embedding(tokens)), last: norm(before)}
    known |= {layer: states[:, n] for n, layer in enumerate(layers)}
    start = _answer(dump, language) if answer is None else answer
    if not 1 <= start < len(tokens) - 1:
        raise UserError(f"{dump.path}: no answer begins at token {start} of {len(tokens)}")
    return Reading(tokens, start, known, before, lambda rows: language.logits(norm(rows)), before)


def _width(language: Language) -> int:
    return language.model.config.get_text_config().hidden_size


def _layers(
    dump: Dump, last: int, drafted: Sequence[int], named: Sequence[int] | None
) -> list[int]:
    """The layers of all states but the last one."""
    count = dump.states.shape[1] - 1
    if named is None:
        found = sorted({layer for layer in drafted if -1 < layer < last})
        if count and count != len(found):
            raise UserError(
                f"{dump.path} holds the states of {count} layers and the last, and the drafter "
                f"reads {len(found)}: name them as they were given to vLLM (such as 2 16 29)"
            )
        return found[:count]
    found = [number - 1 for number in named]
    found = found[:-1] if len(found) == count + 1 and found[-1] == last else found
    if len(found) != count or not all(-1 <= layer <= last for layer in found):
        raise UserError(
            f"{dump.path} holds the states of {count} layers and the last, not of "
            f"{', '.join(map(str, named))}"
        )
    return found


def _answer(dump: Dump, language: Language) -> int:
    """Where the last answer begins by the chat template. Raises UserError where none does."""
    text, tokens = language.encode_chat(MARKER), dump.tokens.tolist()
    marks = language.encode(MARKER)
    at = next((n for n in range(len(text)) if text[n : n + len(marks)] == marks), None)
    opening = [] if at is None else text[at + len(marks) :]
    size = len(opening)
    for end in range(len(tokens) - 2, size, -1) if size else ():
        if tokens[end - size : end] == opening:
            return end
    raise UserError(
        f"{dump.path} does not tell where the answer begins, nor does the chat template: name the "
        "number of its first token"
    )
