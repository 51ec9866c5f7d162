"""Losslessness on odd prompts: methods write what transformers' own argmax writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.rounds.round import new_tokens
from tests.helpers.timing import amount, usually

NEW = amount(30, 60)
TREES = {"ddtree": "drafter", "treeflash": "treeflash", "eagle3": "eagle3"}
KINDS = (
    "dart+best-first", "dspark", "dflash2", "xpress", "domino", "eagle2", "peagle", "medusa",
    "hydra", "mtp", "uno", "sps",
)  # fmt: skip
PROMPTS = {
    "control characters": "\x00\x07\x1b[31mred\x1b[0m\x7f\x85",
    "right to left": "\u202eمرحبا \u200fשלום\u202c",
    "half a sequence, replaced": b"caf\xc3 \xe2\x82 \xf0\x9f\x98".decode("utf-8", "replace"),
    "blanks": "\u00a0\u00a0a\u202fb\u3000c\ufeff\u2028",
    "3,000 tokens": "the cat sat on the mat. " * 125,
}


@pytest.fixture(scope="module")
def engine(toys_folder: Path) -> Engine:
    return Engine(str(toys_folder / "target"), "cpu")


@pytest.mark.parametrize("name", usually(("control characters", "3,000 tokens"), PROMPTS))
def test_methods_write_the_argmax(toys_folder: Path, engine: Engine, name: str):
    prompt, language = PROMPTS[name], engine.prepare()
    ids = torch.tensor([language.encode_chat(prompt)])
    assert ids.shape[1] >= (3000 if "3,000" in name else 10)
    model = AutoModelForCausalLM.from_pretrained(toys_folder / "target").eval()
    ends = {"eos_token_id": sorted(language.stop_ids) or None, "pad_token_id": 0}
    with torch.inference_mode():
        mask = torch.ones_like(ids)
        whole = model.generate(
            ids, attention_mask=mask, do_sample=False, max_new_tokens=NEW, **ends
        )
    expected = whole[0, ids.shape[1] :].tolist()
    assert len(expected) == NEW
    named = (f"{method}@{toys_folder}/{folder}" for method, folder in TREES.items())
    methods = ["ar", "suffix", *named]
    if name == "control characters":  # every kind, once
        kinds = (f"{kind}@{toys_folder}/{kind.partition('+')[0]}" for kind in KINDS)
        methods += ["pld", "lookahead", "ngram-mod", *kinds]
    for method in methods:
        found = engine.start(RunRequest(prompt, method, max_new_tokens=NEW, timed=False))
        assert new_tokens(list(found.rounds)) == expected, method
