"""UNO: q by a forward written out with plain products, PEFT's files, and a target that stays as it
is."""

import json

import pytest
import torch

from analysis.drafters.mistakes import MISTAKES
from analysis.drafters.trials import Subject
from core.errors import UserError
from core.methods.loading import checkpoint_config
from core.methods.registry import runnable, shipped
from core.methods.uno import UnoOptions
from core.methods.uno.drafter import UnoDrafter
from core.methods.uno.model import (
    FORM,
    UnoConfig,
    adapted,
    load_tensors,
)
from tests.helpers import slow_methods, toys
from tests.helpers.toys_on_disk import write_peft

TEXT = [5, 17, 3, 44, 9, 28, 3, 11]
ROOT = 30


@torch.inference_mode()
def test_the_target_stays_bit_for_bit_what_it_is():
    ids, model = torch.tensor([TEXT]), toys.model()
    before = toys.reference()(ids).logits
    parts = [(type(m), len(m._forward_hooks)) for m in model.modules()]
    drafter = toys.uno_drafter()
    drafter.reset(64)
    drafter.extend(TEXT, None)
    drafter.begin(ROOT, 4)
    assert torch.equal(toys.reference()(ids).logits, before)
    assert [(type(m), len(m._forward_hooks)) for m in model.modules()] == parts
    assert drafter.adapter._gate._rows is None


def test_a_text_is_drafted_alike_again_and_noise_stays_below_its_bound(monkeypatch):
    drawn = []
    table = toys.model().get_input_embeddings()
    drafter = toys.uno_drafter()
    drafter._noise = 4
    monkeypatch.setattr(
        type(table),
        "forward",
        lambda own, ids: drawn.append(ids) or torch.nn.functional.embedding(ids, own.weight),
    )
    for _ in range(2):
        drafter.reset(64)
        drafter.extend(TEXT, None)
        drafter.begin(ROOT, 4)
    one, other = drawn
    assert one.tolist() == other.tolist() and one.tolist()[: len(TEXT) + 1] == [*TEXT, ROOT]
    noise = one[len(TEXT) + 1 :]
    assert len(noise) == 4 and int(noise.min()) >= 1 and int(noise.max()) < 4


@pytest.mark.parametrize("noise", [1, 1_000_000])
def test_noise_that_leaves_no_token_or_exceeds_the_vocabulary_is_refused(noise):
    plain = toys.uno_drafter()
    with pytest.raises(UserError, match=f"noise is {noise}: it lies from 2 to"):
        UnoDrafter(plain.model, plain.adapter, plain.config, UnoOptions(5, noise=noise))


@torch.inference_mode()
def test_mistakes_of_the_adapter_are_tried_and_undone():
    """Each trial's q is that of a forward written out with the other scale or mask."""
    drafter, other = toys.uno_drafter(), {"adapter left out": 0.0, "adapter's scale 1": 1.0}
    subject = Subject(drafter, None, 60)  # the trials ask the drafter alone
    before = drafted(drafter)
    rows = [row for row in MISTAKES if row.mistake == "adapter"]
    trials = {trial.name: trial for row in rows for trial in row.trials(subject)}
    assert set(trials) == {
        *other, "adapter's scale alpha / √r", "adapter's scale alpha / r", "places seen whole"
    }  # fmt: skip
    for name, trial in trials.items():
        with trial.change():
            found = drafted(drafter)
        assert not torch.allclose(found[1:], before[1:], atol=1e-5), name
        if name in other:
            wanted = slow_methods.uno(toys.uno_drafter(scale=other[name]), TEXT, ROOT)
            torch.testing.assert_close(found.double(), wanted, atol=2e-6, rtol=1e-5)
        torch.testing.assert_close(drafted(drafter), before, rtol=0, atol=0)


def drafted(drafter):
    drafter.reset(64)
    drafter.extend(TEXT, None)
    return drafter.begin(ROOT, 8).log_q([0] * 5)


# ── folders ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("prefix", ["base_model.model.", ""])
@pytest.mark.parametrize("inside", ["", "adapter"])
def test_a_folder_in_pefts_layout_drafts_what_its_tensors_say(tmp_path, prefix, inside):
    write_peft(tmp_path / inside, toys.uno_tensors(), 3, 6.0, prefix)
    config = FORM.load_config(tmp_path)
    assert (config.rank, config.scale, config.causal, config.mask_token_id) == (3, 2.0, True, None)
    checkpoint_config("uno", tmp_path)
    made = UnoDrafter(*adapted(toys.model(), load_tensors(tmp_path), config), config, UnoOptions(5))
    for drafter in (made, other := toys.uno_drafter()):
        drafter.reset(64)
        drafter.extend(TEXT, None)
    one, two = (d.begin(ROOT, 8).log_q([0] * 5) for d in (made, other))
    torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)


def test_rslora_and_a_missing_alpha(tmp_path):
    write_peft(tmp_path / "a", toys.uno_tensors(), 4, 8.0, use_rslora=True)
    assert FORM.load_config(tmp_path / "a").scale == 4.0
    assert FORM.load_config(tmp_path / "a").rank == 4
    with pytest.raises(UserError, match="not of rank 4"):  # they are of rank 3
        checkpoint_config("uno", tmp_path / "a")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"peft_type": "LOHA"}, "peft_type is not LORA"),
        ({"use_dora": True}, "use_dora"),
        ({"bias": "all"}, "bias"),
        ({"rank_pattern": {"q_proj": 8}}, "rank_pattern"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"r": 0}, "rank"),
        ({"r": "many"}, "holds no uno checkpoint"),
    ],
)
def test_what_is_no_plain_adapter_is_refused(tmp_path, changes, words):
    write_peft(tmp_path, toys.uno_tensors(), 3, 6.0, **changes)
    with pytest.raises(UserError, match=words):
        FORM.load_config(tmp_path)


def test_tensors_of_another_name_without_their_half_or_of_another_target_are_refused(tmp_path):
    whole = toys.uno_tensors()
    half = {k: v for k, v in whole.items() if k != "layers.0.q_proj.b"}
    write_peft(tmp_path / "half", half, 3, 6.0)
    with pytest.raises(UserError, match=r"q_proj\.b is missing"):
        FORM.outline(tmp_path / "half")
    write_peft(tmp_path / "odd", whole, 3, 6.0, prefix="model.")
    with pytest.raises(UserError, match="is no low-rank part"):
        FORM.read_shapes(tmp_path / "odd")
    for name, words in (("layers.9.q_proj", "does not have"), ("layers.0.q_proj", "shape")):
        wrong = {f"{name}.a": torch.zeros(3, 31), f"{name}.b": torch.zeros(32, 3)}
        with pytest.raises(UserError, match=words):
            adapted(toys.model(), wrong, UnoConfig(3, 1.0))


def test_the_denoiser_that_ships_is_its_checkpoint():
    folder = shipped("uno", "smollm2-135m")
    assert folder is not None and folder.name == "denoiser"
    config = checkpoint_config("uno", folder)
    raw = json.loads((folder / "config.json").read_text())
    assert config.masks == raw["block_size"] and not config.causal
    assert config.mask_token_id == raw["mask_token_id"]
    assert "uno" in runnable("smollm2-135m") and "uno" not in runnable("x/y")
