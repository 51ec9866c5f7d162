"""Small checkpoints written by their publishers' own classes, and what those classes say.

    python -m tests.golden.publishers speculators        # or: specforge

Needs the publisher's package. They were made with speculators 0.9.0 and SpecForge 0.2.0, each
installed with ``pip install --no-deps`` beside torch 2.13, transformers 5.19 and what it imports
(openai, loguru, datasets, pydantic-settings, hs-connectors and theirs): what they ask for beside
these needs a GPU.

Writes ``tests/golden/published/PUBLISHER``: for each form a folder as ``save_pretrained`` leaves it
and, beside it, ``FORM.safetensors``: a text, the target's hidden states along it (random: a drafter
takes any), anchors, and log q [A, L, V] at every depth along the text itself. Weights are bfloat16
numbers and what is computed with them is float32, so that the files are small and nothing is
rounded twice. ``test_publishers`` reads them.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).with_name("published")
PUBLISHERS = ("speculators", "specforge")
VOCABULARY, HIDDEN, LAYERS, TEXT, BLOCK = 257, 16, 8, 24, 4
MASK = VOCABULARY - 1
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": HIDDEN, "intermediate_size": 24, "head_dim": 8,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip
ANCHORS = (1, 5, 11, 19)
DRAFT = torch.arange(100) * 2 + 1  # the tokens of a reduced vocabulary

Said = Callable[[Any, Tensor, Tensor], Tensor]
"""Of a model, a text [T] and features [T, F·h]: logits [A, L, draft vocabulary] along the text."""
Form = tuple[str, torch.nn.Module, Said]
"""Its name, a model with numbers for every parameter, and what says q of it."""


def drawn_for(name: str) -> torch.Generator:
    return torch.Generator().manual_seed(crc32(name.encode()))


def randomised(model: Any, name: str) -> Any:
    """Numbers of bfloat16 for every parameter, large enough that each of them matters."""
    draw = drawn_for(name)
    for part, tensor in model.named_parameters():
        size = 1.0 if "embed_tokens" in part else 0.3
        made = torch.randn(tensor.shape, generator=draw) * size
        made += 1.0 if "norm" in part else 0.0
        tensor.data = made.bfloat16().float()
    return model.eval()


def target() -> LlamaForCausalLM:
    return randomised(LlamaForCausalLM(LlamaConfig(**SIZES, num_hidden_layers=LAYERS)), "target")


def with_ends(model: Any) -> Any:
    """A drafter with the target's embedding and head, as training begins; of a reduced vocabulary
    the rows of its tokens."""
    theirs = target()
    model.embed_tokens.weight.data = theirs.model.embed_tokens.weight.data.clone()
    head = theirs.lm_head.weight.data
    model.lm_head.weight.data = head[DRAFT] if len(model.lm_head.weight) == len(DRAFT) else head
    return model


def covered() -> tuple[Tensor, Tensor]:
    """(t2d, d2t) of the reduced vocabulary."""
    t2d = torch.zeros(VOCABULARY, dtype=torch.bool)
    t2d[DRAFT] = True
    return t2d, DRAFT - torch.arange(len(DRAFT))


@contextmanager
def outputs_of(module: torch.nn.Module) -> Iterator[list[Tensor]]:
    found = list[Tensor]()
    hook = module.register_forward_hook(lambda _module, _given, out: found.append(out.detach()))
    try:
        yield found
    finally:
        hook.remove()


def whole(log_q: Tensor) -> Tensor:
    """[A, L, V] of [A, L, draft vocabulary]: minus infinity for what cannot be drafted."""
    if log_q.shape[-1] == VOCABULARY:
        return log_q
    made = torch.full((*log_q.shape[:-1], VOCABULARY), -torch.inf)
    made[..., DRAFT] = log_q
    return made


def write(folder: Path, form: Form) -> None:
    name, model, said = form
    draw = drawn_for(f"text of {name}")
    tokens = torch.randint(VOCABULARY - 1, (TEXT,), generator=draw)
    states = model.fc.in_features
    features = torch.randn(TEXT, states, generator=draw).bfloat16()
    with torch.no_grad():
        log_q = whole(said(model, tokens, features.float()).log_softmax(-1))
    golden = {"tokens": tokens, "features": features, "log_q": log_q.contiguous()}
    model.bfloat16().save_pretrained(folder / name)
    (folder / name / "config.py").unlink(missing_ok=True)  # the publisher's code
    save_file(golden | {"anchors": torch.tensor(ANCHORS)}, folder / f"{name}.safetensors")
    size = sum(file.stat().st_size for file in (folder / name).iterdir())
    print(f"{name}: log q {tuple(log_q.shape)}, {size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("publisher", choices=PUBLISHERS)
    publisher = parser.parse_args().publisher
    folder = HERE / publisher
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    target().bfloat16().save_pretrained(HERE / "target")
    forms = import_module(f"tests.golden.{publisher}_forms").forms
    for form in forms():
        write(folder, form)


if __name__ == "__main__":
    main()
