"""Fast layers compute what the plain ones compute."""

import copy

import pytest
import torch
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralRMSNorm
from transformers.models.phi3.modeling_phi3 import Phi3RMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeRMSNorm
from transformers.models.smollm3.modeling_smollm3 import SmolLM3RMSNorm

from core.models.fast_layers import PLAIN_NORMS, PackedLinear, can_pack, fused_norm, use_fast_layers
from tests.helpers import toys

NORMS = [
    LlamaRMSNorm, MistralRMSNorm, Phi3RMSNorm, Qwen2RMSNorm, Qwen3RMSNorm, Qwen3MoeRMSNorm,
    SmolLM3RMSNorm,
]  # fmt: skip
CPU = torch.device("cpu")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 17, 64, 65, 200])
def test_a_packed_linear_computes_what_the_plain_one_does(rows, bias):
    if not can_pack(torch.float32, CPU):
        pytest.skip("this machine cannot pack weights")
    torch.manual_seed(0)
    plain = torch.nn.Linear(48, 40, bias=bias)
    x = torch.randn(1, rows, 48)
    with torch.inference_mode():
        torch.testing.assert_close(PackedLinear(plain)(x), plain(x), rtol=1e-5, atol=1e-5)


def test_every_plain_norm_is_tried():
    assert {norm.__name__ for norm in NORMS} == PLAIN_NORMS


@pytest.mark.parametrize("kind", NORMS)
def test_a_fused_norm_is_the_norm_and_rounds_once(kind):
    torch.manual_seed(0)
    plain = kind(64, eps=1e-3).requires_grad_(False)
    plain.weight.copy_(torch.rand(64) + 0.5)
    x = torch.randn(3, 64) * 5
    whole = plain(x)
    torch.testing.assert_close(fused_norm(plain)(x), whole, rtol=1e-6, atol=1e-6)
    half = copy.deepcopy(plain).bfloat16()
    exact = kind.forward(half.float(), x.bfloat16().float())
    assert torch.equal(fused_norm(half.bfloat16())(x.bfloat16()), exact.bfloat16())


def test_a_norm_of_another_kind_stays():
    assert fused_norm(Gemma3RMSNorm(8)) is None and fused_norm(torch.nn.LayerNorm(8)) is None


@pytest.mark.parametrize("family", toys.FAMILIES)
def test_a_model_with_a_gpus_layers_equals_the_plain_one(family):
    """The device argument decides what is replaced, wherever the tensors are."""
    model = copy.deepcopy(toys.model(family, dtype=torch.float32))
    ids = torch.arange(12)[None]
    before = model(ids).logits
    use_fast_layers(model, torch.bfloat16, torch.device("cuda"))
    assert not any(type(m).__name__ in PLAIN_NORMS for m in model.modules())
    torch.testing.assert_close(model(ids).logits, before, rtol=1e-4, atol=1e-4)
