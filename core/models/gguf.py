"""Models in a GGUF file, kept as safetensors. A target, with its tokenizer, is converted once by
transformers; a drafter of llama.cpp as ``core.models.gguf_layout`` has it.

A quantised file is dequantised to bfloat16, as the embedded target is; one whose matrices are
float32 or float16 is kept in float32, so that no weight is rounded. llama.cpp multiplies by the
quantised numbers themselves: its logits differ from these by its own rounding of activations.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Protocol

from core.errors import UserError, reading
from core.files import cache_root, scratch
from core.lines import open_regular
from core.progress import Progress, silent

if TYPE_CHECKING:
    from gguf import GGUFReader
    from transformers import PreTrainedConfig

LAYOUT = 1  # raised when the conversion changes: files are then converted again
OF_FILES = f"{LAYOUT}.1"  # and of files alone, not of the embedded target: 1.1 keeps their heads
MAX_TENSORS, MAX_FIELDS = 1 << 16, 1 << 14  # the largest published files have some thousands
SCRATCH = ".making-"  # what the names of folders begin with in which models are made
WITH_HEAD = ("qwen35", "qwen35moe")  # architectures whose heads are read
HEAD = "mtp.safetensors"  # beside the target's own files
NEXTN = {"nextn.eh_proj": "fc", "nextn.enorm": "pre_fc_norm_embedding",
         "nextn.hnorm": "pre_fc_norm_hidden", "nextn.shared_head_norm": "norm"}  # fmt: skip
HEAD_LAYER = {
    "attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj", "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}  # fmt: skip
EXPERTS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
ORIGIN = "draftscope.json"  # written last: a folder that has it is whole


class FileLayout(Protocol):
    """How models that transformers does not read lie in a file (``core.models.gguf_layout``)."""

    @property
    def architecture(self) -> str: ...

    def write(self, file: Path, made: Path, report: Progress) -> None: ...


def check_header(file: Path) -> None:
    """Check that a file begins as GGUF does, with counts that a model can have, and that what its
    header counts lies in the file: the library would read on behind its end, without end.

    Raises UserError.
    """
    try:
        with reading(file), open_regular(file) as opened:
            head = opened.read(24)
            if len(head) < 24 or head[:4] != b"GGUF":
                raise UserError(f"{file} is not a GGUF file")
            version, tensors, fields = struct.unpack("<IQQ", head[4:])
            if version not in (2, 3):
                raise UserError(f"{file} has GGUF's version {version}; versions 2 and 3 are read")
            if not 0 < tensors <= MAX_TENSORS or not 0 < fields <= MAX_FIELDS:
                raise UserError(
                    f"{file} claims {tensors} tensors and {fields} fields: at most {MAX_TENSORS} "
                    f"and {MAX_FIELDS} are read"
                )
            walk = _HeaderWalk(opened)
            walk.fields(fields)
            walk.tensors(tensors)
    except _Beyond:
        raise UserError(f"{file} is cut off, or its header counts more than it holds") from None


class _Beyond(Exception):
    """A header counts what is not in its file."""


class _HeaderWalk:
    """Goes through the header of an open GGUF file. Raises _Beyond where it ends too early, and for
    a value that is of no type of GGUF's."""

    SIZES: ClassVar = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    TEXT, ARRAY, MOST_AXES = 8, 9, 8

    def __init__(self, file: IO[bytes]):
        self.file, at = file, file.tell()
        self.end = file.seek(0, 2)
        file.seek(at)

    def fields(self, count: int) -> None:
        for _ in range(count):
            self.skip(self.number(8))
            self.value(self.number(4))

    def tensors(self, count: int) -> None:
        for _ in range(count):
            self.skip(self.number(8))
            if (axes := self.number(4)) > self.MOST_AXES:
                raise _Beyond
            self.skip(8 * axes + 12)

    def value(self, kind: int, nested: bool = False) -> None:
        if kind == self.TEXT:
            self.skip(self.number(8))
        elif kind == self.ARRAY and not nested:
            kind, count = self.number(4), self.number(8)
            if kind in self.SIZES:
                self.skip(count * self.SIZES[kind])
            else:
                for _ in range(count):  # each takes eight bytes or more, so this ends
                    self.value(kind, nested=True)
        elif kind in self.SIZES:
            self.skip(self.SIZES[kind])
        else:
            raise _Beyond

    def number(self, size: int) -> int:
        read = self.file.read(size)
        if len(read) < size:
            raise _Beyond
        return int.from_bytes(read, "little")

    def skip(self, size: int) -> None:
        if size > self.end - self.file.tell():
            raise _Beyond
        self.file.seek(size, 1)


def folder_of(file: Path, layout: FileLayout | None = None) -> Path:
    """Where the model of a file is kept. Another file under the same name has another folder."""
    found, kind = file.resolve().stat(), "" if layout is None else f"\0{layout.architecture}"
    identity = f"{file.resolve()}\0{found.st_size}\0{found.st_mtime_ns}\0{OF_FILES}{kind}"
    key = hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:16]
    return cache_root() / "models" / f"gguf-{key}"


def is_whole(folder: Path) -> bool:
    """Whether a folder that was made of a GGUF file is complete."""
    return (folder / ORIGIN).is_file()


def prepare(file: Path, report: Progress = silent, layout: FileLayout | None = None) -> Path:
    """The folder of a GGUF file's model, which is made first if it is not there.

    ``layout``: the kind of drafter that it holds; None: a language model. Raises UserError for a
    file that is not GGUF, or holds no such drafter; for one that they cannot read, the libraries
    raise errors of any type.
    """
    check_header(file)
    final = folder_of(file, layout)
    if not is_whole(final):
        with making(final) as made:
            if layout is not None:
                layout.write(file, made, report)
            else:
                convert(file, made, file.stem, {"file": file.name}, report)
    return final


def read_config(file: Path) -> PreTrainedConfig:
    """The config that a GGUF file's fields give; no weight is read. Raises as ``prepare``."""
    from gguf import GGUFReader
    from transformers import AutoConfig

    check_header(file)
    config = AutoConfig.from_pretrained(str(file.parent), gguf_file=file.name)
    if heads := heads_behind(GGUFReader(str(file))):
        config.mtp_num_hidden_layers = heads
    return config


@contextmanager
def making(final: Path) -> Iterator[Path]:
    """A folder that is renamed to ``final`` when it was made. An interruption leaves nothing."""
    with scratch(final.parent, SCRATCH) as folder:
        made = folder / "model"
        yield made
        move_into_place(made, final)


def move_into_place(made: Path, final: Path) -> None:
    """Rename ``made`` to ``final``. When another process was faster, its result stays."""
    try:
        made.rename(final)
    except OSError:
        if not is_whole(final):
            shutil.rmtree(final, ignore_errors=True)
            made.rename(final)


def convert(file: Path, made: Path, name: str, origin: Mapping[str, Any], report: Progress) -> None:
    """Write a GGUF file's model as safetensors, with config and tokenizer, into ``made``.

    name    the model's, in its config
    origin  what is noted of where it is from, for ``draftscope.json``

    Raises UserError for a file that lacks some of the model's tensors.
    """
    report(None, "converting the GGUF file")
    import torch
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    reader = GGUFReader(str(file))
    dtype = torch.float32 if holds_floats(reader.tensors) else torch.bfloat16
    heads = heads_behind(reader)
    with _bar_of_transformers(report):
        packed = _whole(file, {**source, "dtype": dtype})
    config, state = packed.config, packed.state_dict()
    # A model loaded from GGUF refuses save_pretrained; one of the same config does not.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config._name_or_path, config.dtype = name, dtype
    if heads:
        config.mtp_num_hidden_layers = heads
    with torch.device("meta"):
        plain = AutoModelForCausalLM.from_config(config, dtype=dtype)
    plain.load_state_dict(state, assign=True)
    plain.tie_weights()
    plain.generation_config = packed.generation_config
    plain.save_pretrained(made)
    if heads == 1:
        write_head(reader, config.num_hidden_layers, made / HEAD)
    AutoTokenizer.from_pretrained(**source).save_pretrained(made)
    (made / ORIGIN).write_text(json.dumps({**origin, "layout": LAYOUT}, indent=1))


def _whole(file: Path, source: Mapping[str, Any]) -> Any:
    """The model that transformers makes of a file. Raises UserError where it would fill tensors
    that are missing with random numbers."""
    from transformers import AutoModelForCausalLM, GgufConfig

    load: Any = AutoModelForCausalLM.from_pretrained
    packed, told = load(
        **source, quantization_config=GgufConfig(dequantize=True), output_loading_info=True
    )
    if missing := sorted(told["missing_keys"]):
        few = f"{len(missing)} of its tensors, {missing[0]} among them"
        raise UserError(f"{file} holds no whole model: it lacks {few}")
    return packed


def holds_floats(tensors: Iterable[Any]) -> bool:
    """Whether every matrix among a GGUF file's tensors is stored as float32 or float16."""
    from gguf import GGMLQuantizationType

    floats = (GGMLQuantizationType.F32, GGMLQuantizationType.F16)
    return all(each.tensor_type in floats for each in tensors if len(each.shape) > 1)


# ── a head of multi-token prediction behind the last layer ──────────────────────────────────────


def heads_behind(reader: GGUFReader) -> int:
    """How many blocks of a GGUF file stand behind the layers of an architecture whose heads are
    read. 0 for a file that counts some and lacks the first: fine-tunes often keep the count."""
    kind = reader.get_field("general.architecture")
    if kind is None or kind.contents() not in WITH_HEAD:
        return 0
    names = ("block_count", "nextn_predict_layers")
    blocks, heads = (reader.get_field(f"{kind.contents()}.{name}") for name in names)
    if blocks is None or heads is None:
        return 0
    first = f"blk.{int(blocks.contents()) - int(heads.contents())}.nextn.eh_proj.weight"
    return int(heads.contents()) if any(each.name == first for each in reader.tensors) else 0


def write_head(reader: GGUFReader, block: int, where: Path, report: Progress = silent) -> None:
    """Write the head in this block by Qwen's names, and a tensor that is not known by its own: who
    loads the head refuses it. llama.cpp's converter adds 1 to the gains of norms."""
    import torch
    from gguf import dequantize
    from safetensors.torch import save_file

    before = f"blk.{block}."
    stored = [each for each in reader.tensors if each.name.startswith(before)]
    dtype = torch.float32 if holds_floats(reader.tensors) else torch.bfloat16
    found, experts = dict[str, Any](), dict[str, Any]()
    for number, each in enumerate(stored):
        report(number / len(stored), "converting the GGUF file")
        name = each.name.removeprefix(before).removesuffix(".weight")
        values = torch.from_numpy(dequantize(each.data, each.tensor_type).copy())
        values = values - 1 if name.endswith("norm") else values
        if name in EXPERTS:
            experts[name] = values.to(dtype)
            continue
        if name == "ffn_gate_inp_shexp" and values.ndim == 1:
            values = values[None]
        own = NEXTN.get(name, f"layers.0.{HEAD_LAYER.get(name, name)}")
        found[f"mtp.{own}.weight"] = values.to(dtype)
    if len(experts) == len(EXPERTS):
        gate, up, down = (experts[name] for name in EXPERTS)
        found["mtp.layers.0.mlp.experts.gate_up_proj"] = torch.cat([gate, up], 1)
        found["mtp.layers.0.mlp.experts.down_proj"] = down
    save_file({n: each.contiguous() for n, each in found.items()}, where, {"format": "pt"})


@contextmanager
def _bar_of_transformers(report: Progress) -> Iterator[None]:
    """Report the progress for which transformers would draw its own bar: tensors read."""
    from transformers import modeling_gguf_pytorch_utils

    module: Any = modeling_gguf_pytorch_utils

    def counted(tensors: Sequence[Any], **_: Any) -> Iterator[Any]:
        for number, tensor in enumerate(tensors):
            report(number / len(tensors), "converting the GGUF file")
            yield tensor

    own = getattr(module, "tqdm", None)
    if own is not None:
        module.tqdm = counted
    try:
        yield
    finally:
        if own is not None:
            module.tqdm = own
