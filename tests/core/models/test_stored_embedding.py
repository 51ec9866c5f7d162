"""The input embedding stays in its file, and the numbers stay the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from core.models.fast_layers import can_pack
from core.models.language import load_language
from core.models.stored_embedding import StoredEmbedding, store_embedding
from tests.helpers import toys

packs = can_pack(torch.float32, torch.device("cpu"))


def saved(where, dtype):
    """A toy model's folder in ``dtype``, and the model as float32."""
    model = toys.language_model().to(dtype)
    model.save_pretrained(where)
    toys.tokenizer().save_pretrained(where)
    return model.float()


@pytest.mark.skipif(not packs, reason="linears are not packed here")
def test_the_logits_are_those_of_the_loaded_embedding(tmp_path):
    saved(tmp_path, torch.bfloat16)
    stored = load_language(str(tmp_path), "cpu")
    plain = load_language(str(tmp_path), "cpu", fast=False)
    table = stored.model.get_input_embeddings()
    assert isinstance(table, StoredEmbedding) and stored.model.dtype == torch.float32
    assert torch.equal(table.weight, plain.model.get_input_embeddings().weight)
    ids = torch.tensor([[3, 200, 7, 7, 0, toys.LANGUAGE_SIZE - 1]])
    assert torch.equal(table(ids), plain.embedding(ids))
    torch.testing.assert_close(stored.model(ids).logits, plain.model(ids).logits)


@pytest.mark.parametrize("change", ["float32 file", "other numbers", "other shape", "no such name"])
def test_what_the_file_does_not_hold_stays_in_memory(tmp_path, change):
    model = saved(tmp_path, torch.float32 if change == "float32 file" else torch.bfloat16)
    own = model.get_input_embeddings()
    if change == "other numbers":
        own.weight.data[9, 3] += 1e-4
    elif change == "other shape":
        model.set_input_embeddings(own := nn.Embedding(7, 32))
    elif change == "no such name":
        (tmp_path / "model.safetensors").unlink()
    store_embedding(model, tmp_path)
    assert model.get_input_embeddings() is own
