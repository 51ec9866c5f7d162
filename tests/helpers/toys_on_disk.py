"""A random target that reads and writes bytes, and a drafter of every kind for it, on disk."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from core.methods.dart import model as dart
from core.methods.dflash import model as dflash
from core.methods.dflash2 import model as dflash2
from core.methods.domino import model as domino
from core.methods.dspark import model as dspark
from core.methods.eagle2 import model as eagle2
from core.methods.eagle3 import model as eagle3
from core.methods.hydra import model as hydra
from core.methods.medusa import model as medusa
from core.methods.mtp import model as mtp
from core.methods.registry import find_method
from core.methods.treeflash import model as treeflash
from core.methods.xpress import model as xpress
from core.models import checkpoint
from core.models.adapter import PARTS
from core.models.checkpoint import WithHead
from core.models.hugging_face import ATTENTION
from core.ngram import build_store
from tests.helpers import toys

BYTES = 257  # every byte and a mask token


def save_toys(folder: Path) -> tuple[Path, Path]:
    """The folders of the target and of its DFlash drafter, a copy of those that were made once.

    Beside them lie a drafter of every other kind and an n-gram store.
    """
    shutil.copytree(_made(), folder, dirs_exist_ok=True)
    return folder / "target", folder / "drafter"


def folder_of_process() -> Path:
    """A new folder that goes with the process. pytest removes what a killed one left, three runs
    later: it lies below pytest's own folder."""
    folder = Path(tempfile.mkdtemp(prefix="toys-", dir=os.environ.get("PYTEST_FOLDER")))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _made() -> Path:
    """The toys' own folder."""
    folder = folder_of_process()
    target, drafter = folder / "target", folder / "drafter"
    toys._make("llama", 0, BYTES, ATTENTION).float().save_pretrained(target)
    write_tokenizer(target)
    sizes = {"dtype": torch.float32, "vocab_size": BYTES}
    dflash.FORM.save_model(toys.dflash_model(mask_token_id=BYTES - 1, **sizes), drafter)
    conditioned = toys.treeflash_model(mask_token_id=BYTES - 1, **sizes)
    treeflash.save_model(conditioned, folder / "treeflash")
    dart.FORM.save_model(toys.dart_model(draft_vocab_size=BYTES, **sizes), folder / "dart")
    draft = folder / "sps"
    toys._make("llama", 1, BYTES, ATTENTION).float().save_pretrained(draft)
    write_tokenizer(draft)
    eagle = toys.eagle_drafter(draft_vocab_size=BYTES, **sizes).model
    eagle3.save(WithHead(eagle, None, None), folder / "eagle3")
    parallel = toys.parallel_drafter(mask_token_id=BYTES - 1, **sizes).model
    eagle3.save(WithHead(parallel, None, None), folder / "peagle")
    masked = {"mask_token_id": BYTES - 1, **sizes}
    dspark.FORM.save_model(toys.dspark_model(**masked), folder / "dspark")
    dflash2.FORM.save_model(toys.dflash2_model(**masked), folder / "dflash2")
    xpress.FORM.save_model(toys.xpress_drafter(**masked).model, folder / "xpress")
    domino.FORM.save_model(toys.domino_drafter(**masked).model, folder / "domino")
    eagle2.FORM.save_model(toys.feature_drafter(**sizes).model, folder / "eagle2")
    medusa.FORM.save_model(toys.medusa_drafter().model, folder / "medusa")
    hydra.FORM.save_model(toys.hydra_drafter().model, folder / "hydra")
    head = toys.mtp_drafter(dtype=torch.float32, vocabulary=BYTES).model
    config = toys.model("llama", vocabulary=BYTES).config.to_dict()
    mtp.write_in_qwens_layout(head, config, folder / "mtp")
    helper = toys.assistant_drafter(torch.float32, BYTES).model
    raw = {"model_type": "gemma4_assistant", "backbone_hidden_size": 32}
    raw |= {"text_config": dict(helper.config.text)}
    checkpoint.write(folder / "gemma4-assistant", raw, helper.state_dict(), small=False)
    write_peft(folder / "uno", toys.uno_tensors(), 3, 6.0)
    text = list(b"the cat sat on the mat and the cat sat on the hat")
    build_store([text], folder / "grams.safetensors", BYTES)
    return folder


def write_tokenizer(folder: Path) -> None:
    """A tokenizer of bytes, and a mask token."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(letters)} | {"<mask>": BYTES - 1}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)


def write_peft(folder, tensors, rank, alpha, prefix="base_model.model.", **more):
    """An adapter in PEFT's layout: tensors by our names, ``more`` of its config."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "bias": "none", **more}
    (folder / "adapter_config.json").write_text(json.dumps(raw))
    stored = {}
    for name, tensor in tensors.items():
        _, number, part, half = name.split(".")
        at = f"model.layers.{number}.{PARTS[part]}.{part}.lora_{half.upper()}.weight"
        stored[prefix + at] = tensor.float().contiguous()
    save_file(stored, folder / "adapter_model.safetensors")


def write_checkpoint(folder, fields, state):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(fields))
    save_file({n: t.contiguous() for n, t in state.items()}, folder / "model.safetensors")


def options_for(toy: list[str], method: str) -> list[str]:
    """The same, with the drafter the method needs and a small n-gram store where it reads one."""
    info, folder = find_method(method).drafter_info, Path(toy[1]).parent
    own = folder / (info.name if info else "")
    drafter = own if info and own.is_dir() else folder / "drafter"
    reads_grams = any(option.name == "ngram" for option in find_method(method).all_options)
    grams = ["--set", f"ngram={folder / 'grams.safetensors'}"] if reads_grams else []
    return [*toy[:3], str(drafter), *toy[4:], *grams]
