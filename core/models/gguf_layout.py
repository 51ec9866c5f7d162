"""Drafters in llama.cpp's GGUF files, in the form that their publishers' safetensors have.

Fields, names and orders are those of llama.cpp's converter (``conversion/llama.py``,
``conversion/qwen.py``), and what they mean is as ``src/models/eagle3.cpp`` and ``dflash.cpp`` read
them. What stands in a file and is not known here is refused: it may change every number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from core.errors import UserError
from core.models.checkpoint import Form
from core.models.configs import as_user_error
from core.models.gguf import LAYOUT, ORIGIN, holds_floats
from core.progress import Progress

# The tensors of a block that every layout has, and their names in safetensors.
BLOCK = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "output_norm": "norm", "output": "lm_head",
    "token_embd": "embed_tokens", "fc": "fc", "d2t": "d2t",
}  # fmt: skip
# How frequencies are scaled, and Hugging Face's names of it.
SCALING = {
    "rope.scaling.type": "rope_type", "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.yarn_attn_factor": "attention_factor",
    "rope.scaling.yarn_beta_fast": "beta_fast", "rope.scaling.yarn_beta_slow": "beta_slow",
}  # fmt: skip
FIELDS = (
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
    "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.value_length", "attention.layer_norm_rms_epsilon", "rope.freq_base",
    "rope.dimension_count", "rope.dimension_sections", "target_layers", "target_hidden_size",
    *SCALING,
)  # fmt: skip
FREQUENCIES = "rope_freqs.weight"  # what llama3's are divided by, of the half of a head
# What tensors of other drafters hold in their names, and what these look like.
OTHERS = {
    "markov_": "a drafter with a Markov head (dspark)",
    "selector_": "a drafter with a selector (dflash2)",
    "sinks": "a drafter with attention sinks", "_exps": "a drafter with a mixture of experts",
    "attn_kv": "a drafter with latent attention (MLA)",
}  # fmt: skip
TURNED = ("q_proj.weight", "k_proj.weight")


@dataclass(frozen=True)
class GgufHeader:
    """A file without its weights.

    fields   those of its architecture, without the architecture's name
    tokens   of its vocabulary; 0: it has none
    mask     its mask token; None: it names none
    tensors  gguf's ``ReaderTensor``s by name
    """

    architecture: str
    fields: Mapping[str, Any]
    tokens: int
    mask: int | None
    tensors: Mapping[str, Any]

    @staticmethod
    def of(file: Path) -> GgufHeader:
        """Raises errors of any type, the library's, for a file that is not GGUF."""
        from gguf import GGUFReader

        reader = GGUFReader(str(file))
        told = {name: each for name, each in reader.fields.items() if not name.startswith("GGUF.")}
        kind = str(told["general.architecture"].contents())
        own = {n.removeprefix(f"{kind}."): n for n in told if n.startswith(f"{kind}.")}
        vocabulary, mask = (told.get(f"tokenizer.ggml.{n}") for n in ("tokens", "mask_token_id"))
        return GgufHeader(
            kind,
            {short: _decimal(told[name].contents()) for short, name in own.items()},
            0 if vocabulary is None else len(vocabulary.data),
            None if mask is None else mask.contents(),
            {each.name: each for each in reader.tensors},
        )

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape as torch has it."""
        return tuple(int(size) for size in reversed(self.tensors[name].shape))

    def values(self, name: str) -> Tensor:
        """A tensor of float32 numbers, or of whole ones."""
        from gguf import dequantize

        stored = self.tensors[name]
        whole = stored.data.dtype.kind == "i" and stored.data.dtype.itemsize == 8
        found = stored.data if whole else dequantize(stored.data, stored.tensor_type)
        return torch.from_numpy(np.array(found)).reshape(self.shape(name))


def _decimal(value: Any) -> Any:
    """A float32 as the decimal number that was meant: 1e-6, not 9.99999997e-7."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


@dataclass(frozen=True, eq=False)
class GgufLayout:
    """One kind of drafter in llama.cpp's files.

    architecture  as the file names it
    form          the kind of checkpoint that a file becomes
    config        what config.json says beside ``layer_config``
    fields        that it may have beside ``FIELDS``
    names         of tensors beside ``BLOCK``; a name may have its end, where ours has none
    mark          a tensor that only this one of the architecture's kinds has; "": it has none
    neighbours    rows of q and k are stored so that neighbours turn together
    """

    architecture: str
    form: Form[Any, Any]
    config: Callable[[GgufHeader], dict[str, Any]]
    fields: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    mark: str = ""
    neighbours: bool = False

    def suits(self, header: GgufHeader) -> bool:
        """Whether a file is of this architecture, and of this of its kinds."""
        return header.architecture == self.architecture and (
            not self.mark or self.mark in header.tensors
        )

    def read_config(self, file: Path, header: GgufHeader) -> dict[str, Any]:
        """The object of config.json, once it fits all tensors. Raises UserError for a drafter of
        another kind or a variant that is not read."""
        with as_user_error(file, self.form.kind):
            self._check_kind(header)
            config = {**layer_config(header), **self.config(header)}
        found = {self._ours(n): header.shape(n) for n in header.tensors if n != FREQUENCIES}
        self.form.check(config, found, file)
        return config

    def write(self, file: Path, made: Path, report: Progress) -> None:
        """Write the file's drafter as a checkpoint of its kind into ``made``. Raises as
        ``read_config``."""
        header = GgufHeader.of(file)
        config = self.read_config(file, header)
        dtype = torch.float32 if holds_floats(header.tensors.values()) else torch.bfloat16
        names, state = [n for n in header.tensors if n != FREQUENCIES], dict[str, Tensor]()
        for number, name in enumerate(names):
            report(number / len(names), "converting the GGUF file")
            found = self._restored(self._ours(name), header.values(name), config)
            state[self._ours(name)] = found.to(dtype) if found.is_floating_point() else found
        made.mkdir(parents=True)
        save_file(state, made / "model.safetensors", metadata={"format": "pt"})
        (made / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        (made / ORIGIN).write_text(json.dumps({"file": file.name, "layout": LAYOUT}, indent=1))

    def _check_kind(self, header: GgufHeader) -> None:
        """Raises UserError for another architecture, and for fields and tensors that are not
        known."""
        known = (*FIELDS, *self.fields)
        if header.architecture != self.architecture:
            raise UserError(
                f"it holds a model of the architecture {_said(header.architecture)}, and of GGUF "
                f"files {self.form.kind} is read in llama.cpp's {self.architecture!r}"
            )
        if not self.suits(header):
            raise UserError(
                f"it has no tensor {self.mark!r}, by which {self.form.kind} is known among "
                f"llama.cpp's {self.architecture!r}"
            )
        names = [n for n in header.tensors if n != FREQUENCIES and not self._ours(n)]
        if names:
            whose = next((w for n, w in OTHERS.items() if any(n in each for each in names)), "")
            like = f"it looks like {whose}, and " if whose else ""
            raise UserError(
                f"the tensor {_said(names[0])} is not known here: {like}of llama.cpp's "
                f"{self.architecture!r} plain {self.form.kind} is read"
            )
        if odd := [name for name in header.fields if name not in known]:
            raise UserError(f"the field {_said(f'{self.architecture}.{odd[0]}')} is not known here")

    def _ours(self, name: str) -> str:
        """A tensor's name in safetensors; "" for one that is not known."""
        block, stem, end = _NAME.fullmatch(name).groups(default="")  # type: ignore[union-attr]
        known = {**BLOCK, **self.names}
        if (found := self.names.get(stem + end)) is None:
            found = known[stem] + end if stem in known else ""
        return block.replace("blk.", "layers.") + found if found else ""

    def _restored(self, name: str, values: Tensor, config: Mapping[str, Any]) -> Tensor:
        """A tensor's values in the order that safetensors have, by its name there."""
        if name == "d2t":  # the target's tokens; in safetensors what is added to a row's number
            return values - torch.arange(len(values))
        if self.neighbours and name.endswith(TURNED):
            pairs = values.unflatten(0, (-1, config["head_dim"] // 2, 2))
            return pairs.transpose(1, 2).flatten(0, 2).contiguous()
        return values


_NAME = re.compile(r"(blk\.\d{1,4}\.)?(.*?)(\.weight)?", re.DOTALL)


def _said(name: str) -> str:
    """A name out of a file, as a sentence may hold it."""
    return repr(name[:60])


def layer_config(header: GgufHeader) -> dict[str, Any]:
    """The fields of a published config that every drafter's layers have.

    Raises KeyError for one that is missing.
    """
    own = header.fields
    heads, hidden = own["attention.head_count"], own["embedding_length"]
    width = own.get("attention.key_length", hidden // heads)
    # Of text alone, the first three axes turn by one position, and the fourth does not turn.
    if any(own.get("rope.dimension_sections", [])[3:]):
        raise UserError("a drafter with rotary positions on a fourth axis is not supported")
    if own.get("attention.value_length", width) != width:
        raise UserError("a drafter whose keys and values have other widths is not supported")
    return {
        "num_hidden_layers": own["block_count"],
        "hidden_size": hidden,
        "intermediate_size": own["feed_forward_length"],
        "num_attention_heads": heads,
        "num_key_value_heads": own.get("attention.head_count_kv", heads),
        "head_dim": width,
        "vocab_size": vocabulary(header),
        "rms_norm_eps": own["attention.layer_norm_rms_epsilon"],
        "max_position_embeddings": own["context_length"],
        "rope_theta": own.get("rope.freq_base", 10000.0),
        "partial_rotary_factor": own.get("rope.dimension_count", width) / width,
        **_scaling(header),
    }


def _scaling(header: GgufHeader) -> dict[str, Any]:
    """The field ``rope_scaling``; llama3's frequencies as longrope's, whose factors are the same
    for every length."""
    found = {to: header.fields[name] for name, to in SCALING.items() if name in header.fields}
    scaled = found.get("rope_type", "none") != "none"
    if FREQUENCIES not in header.tensors:
        return {"rope_scaling": found} if scaled else {}
    if scaled:
        raise UserError("a drafter whose rotary positions are scaled twice is not supported")
    factors = header.values(FREQUENCIES).tolist()
    own = {"rope_type": "longrope", "short_factor": factors, "long_factor": factors}
    return {"rope_scaling": {**own, "attention_factor": 1.0}}


def draft_vocabulary(header: GgufHeader) -> int:
    """How many tokens its head scores."""
    names = [name for name in ("output.weight", "d2t") if name in header.tensors]
    return header.shape(names[0])[0] if names else vocabulary(header)


def vocabulary(header: GgufHeader) -> int:
    """The target's tokens, as its config counts them: a tokenizer may have fewer. Raises KeyError
    for a file that does not say it."""
    return header.fields.get("vocab_size") or header.tokens or header.fields["vocab_size"]
