"""A draft model with another vocabulary than the target's: what both share, and what q is."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast
from transformers.generation.candidate_generator import AssistantToTargetTranslator

from analysis.drafters.mistakes import MISTAKES
from analysis.drafters.trials import Subject
from analysis.measures.probe import observe
from app.cli import main
from core.decoding.decode import Decoder, decode
from core.decoding.engine import Engine
from core.decoding.request import RunRequest, Settings
from core.drafting.builders import Chain, SampledChain, best_first
from core.errors import UserError
from core.methods.sps.drafter import LmDrafter
from core.methods.sps.translation import Translation, shared_tokens
from core.models.language import Vocabulary, load_language
from core.rounds.causes import Cause
from tests.helpers import toys
from tests.helpers.toys import GREEDY, HOT, PROMPT, plain

TEXT = (
    """The quick brown fox jumps over the lazy dog. The dog sleeps, and the fox runs over the hill.
A tree of tokens grows where a chain of tokens ends: naïve cafés, 12 345, déjà vu, x = y + z.
"""
    * 3
)
BUILDERS = {
    "coupled": SampledChain(coupled=True),
    "chain": Chain(),
    "best-first": best_first,
}


# ── tokenizers ───────────────────────────────────────────────────────────────────────────────────


def byte_level(size: int, text: str = TEXT, special=("<|end|>",), start: str = ""):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([text], BpeTrainer(vocab_size=size, initial_alphabet=letters))
    made.add_special_tokens(list(special))
    if start:
        ids = [(start, made.token_to_id(start))]
        made.post_processor = TemplateProcessing(single=f"{start} $A", special_tokens=ids)
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>")


def sentence_piece(size: int, text: str = TEXT):
    """As Llama's and Gemma's: "▁" before a word, bytes as <0x0A>."""
    made = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    first = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    made.train_from_iterator([text], BpeTrainer(vocab_size=size, special_tokens=first))
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", eos_token="<unk>")


@cache
def vocabularies() -> dict[str, Vocabulary]:
    words = "Der schnelle braune Fuchs springt. " * 5 + TEXT[:120]
    made = {
        "target": byte_level(380),
        "smaller": byte_level(300),
        "other": byte_level(340, words, special=("<|begin|>", "<|end|>"), start="<|begin|>"),
        "pieces": sentence_piece(420),
    }
    return {name: Vocabulary(each, len(each)) for name, each in made.items()}


PAIRS = ("target smaller", "target other", "other target", "target pieces", "pieces target")


@pytest.mark.parametrize("pair", PAIRS)
def test_the_tokens_that_both_have_are_those_of_transformers(pair):
    target, draft = (vocabularies()[name] for name in pair.split())
    theirs = AssistantToTargetTranslator(target.tokenizer, draft.tokenizer, target.size)
    mine = shared_tokens(target, draft)
    assert mine == theirs.target_to_assistant_input_ids and len(mine) > 20
    blanks = [i for i in mine if target.text_behind(i).startswith(" ")]
    assert len(blanks) > 5, "the sign of a blank is one in both"
    back = theirs._assistant_to_target_input_ids.tolist()
    assert {back[own]: own for own in mine.values()} == mine


def test_a_token_that_no_row_stands_for_is_not_shared():
    target, draft = (vocabularies()[name] for name in ("target", "smaller"))
    every = shared_tokens(target, draft)
    fewer = shared_tokens(Vocabulary(target.tokenizer, 200), Vocabulary(draft.tokenizer, 250))
    assert fewer == {i: own for i, own in every.items() if i < 200 and own < 250} != every


@pytest.mark.parametrize("name", ["smaller", "other", "pieces"])
def test_a_text_in_the_draft_models_tokens_is_the_same_text(name):
    """Tokens that are not shared are their text; each is translated by itself."""
    target, draft = (vocabularies()[each] for each in ("target", name))
    made = Translation.of(target, draft, "here")
    ids = target.tokenizer(TEXT, add_special_tokens=False).input_ids
    found = made.text(ids)
    assert draft.tokenizer.decode(found, skip_special_tokens=True) == TEXT
    assert found == [*made.start, *(own for token in ids for own in made.ids(token))]
    assert any(token not in made.shared for token in ids)
    assert made.start == ((draft.tokenizer.convert_tokens_to_ids("<|begin|>"),)
                          if name == "other" else ())  # fmt: skip
    assert made.text([target.tokenizer.eos_token_id])[-1:] == [
        draft.tokenizer.eos_token_id if name != "pieces" else made.alone
    ]


def test_a_special_token_that_the_draft_model_lacks_is_left_out():
    target, draft = (vocabularies()[name] for name in ("other", "target"))
    made = Translation.of(target, draft, "here")
    begin = target.tokenizer.convert_tokens_to_ids("<|begin|>")
    assert made.ids(begin) == () and len(made.text([begin])) == 1


def test_nothing_in_common_is_refused():
    def words(*some):
        made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(some)}, some[0]))
        made.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, unk_token=some[0])
        return Vocabulary(tokenizer, len(some))

    with pytest.raises(UserError, match="in there has no token of the target's"):
        Translation.of(words("?", "a", "b"), words("!", "c", "d"), "there")


# ── what q is ────────────────────────────────────────────────────────────────────────────────────

# A toy target of 48 tokens, and a draft model of 30: 20 are shared, some are spelt in two or three,
# two are not seen at all.
SHARED = {token: 29 - token for token in range(20)}
SPELT = {token: [token % 7, 3, token % 5][: 2 + token % 2] for token in range(20, 46)}


def spell(token: int) -> list[int]:
    return SPELT.get(token, [])


def translation(start: tuple[int, ...] = (2,), shared=SHARED) -> Translation:
    return Translation(shared, toys.VOCABULARY, start, 1, spell)


@cache
def draft_model():
    """Rows of the toy target under other numbers, so that its q is of some use."""
    made, noise = copy.deepcopy(toys.draft_model()), torch.Generator().manual_seed(3)
    rows = torch.randn(30, 32, generator=noise).double() * 0.2
    for token, own in SHARED.items():
        rows[own] = made.get_input_embeddings().weight[token]
    heads = rows.clone()
    for token, own in SHARED.items():
        heads[own] = made.get_output_embeddings().weight[token]
    made.resize_token_embeddings(30)
    made.get_input_embeddings().weight.data, made.get_output_embeddings().weight.data = rows, heads
    return made


@cache
def eager():
    """The draft model, with transformers' own attention."""
    made = toys._make("llama", 0, 30, "eager").double()
    made.load_state_dict(draft_model().state_dict())
    return made


@cache
def slow(*text: int) -> torch.Tensor:
    """log q [V] after a text of the target's, by the definition and one forward without a cache."""
    own = [2]
    for token in text:
        own += [SHARED[token]] if token in SHARED else spell(token)
    with torch.inference_mode():
        logits = eager()(torch.tensor([own]), use_cache=False).logits[0, -1].float()
    weights = {token: float(logits[own].double().exp()) for token, own in SHARED.items()}
    found, whole = torch.full((toys.VOCABULARY,), -torch.inf), sum(weights.values())
    for token, weight in weights.items():
        found[token] = torch.tensor(weight / whole).log()
    return found


def drafter(depth: int = 5) -> LmDrafter:
    return LmDrafter(draft_model(), depth, translation())


@pytest.mark.parametrize("sampling", [GREEDY, HOT], ids=["greedy", "hot"])
@pytest.mark.parametrize("name", BUILDERS)
def test_every_node_has_q_over_the_shared_tokens_and_the_text_is_that_of_plain_decoding(
    name, sampling
):
    """In every round, so what the cache keeps of accepted nodes is right."""
    settings, text = Settings(9, 60, sampling), list(PROMPT)
    method, causes, gone = Decoder("sps", drafter(), BUILDERS[name]), set(), 0
    for record in decode(toys.target(layers=()), method, PROMPT, settings, observe):
        draft, known = record.draft, text[: record.position]
        for row in range(1, len(draft)):
            path = [*known, *draft.tokens[list(draft.path(row))].tolist()]
            assert path[-1] in SHARED
            expected = slow(*path[:-1])[path[-1]]
            assert draft.log_q[row] == pytest.approx(float(expected), abs=1e-4)
        text += [int(draft.tokens[0]), *record.committed] if record.index == 0 else record.committed
        assert record.probe is None or record.probe.vocabulary == 20
        causes.add(record.stop_reason)
        gone += sum(token not in SHARED for token in record.committed)
    assert tuple(text[len(PROMPT) :]) == plain(60, sampling)
    assert Cause.VOCABULARY in causes and gone > 3


def test_q_along_any_path_is_that_of_the_definition():
    """Tokens that are shared, spelt in several and not seen, as root and behind it."""
    made = drafter(8)
    for root, path in ((3, [3, 21, 46, 7, 47, 20]), (46, [46, 47, 5, 25]), (30, [30, 46, 31, 2])):
        made.reset(64)
        made.extend(list(PROMPT), None)
        found = made.begin(root, 4).log_q(path)
        for depth in range(len(path)):
            expected = slow(*PROMPT, *path[: depth + 1])
            torch.testing.assert_close(found[depth], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("asked", [True, False], ids=["asked", "not asked"])
def test_a_root_that_is_not_seen_takes_nothing_from_the_text(asked):
    made, text = drafter(), list(PROMPT)
    made.reset(64)
    made.extend(text, None)
    for tokens in ([46], [47, 8], [46, 47], [21, 46], [5]):
        session = made.begin(tokens[0], 4)
        if asked:
            session.log_q(tokens)
        made.extend(tokens, None)
        text += tokens
    found = made.begin(46, 4).log_q([46, 3])[-1]
    torch.testing.assert_close(found, slow(*text, 46, 3), rtol=1e-4, atol=1e-4)


def test_a_text_of_which_nothing_is_seen_is_drafted_from():
    made = LmDrafter(draft_model(), 3, translation(start=()))
    made.reset(64)
    made.extend([46], None)
    assert torch.isfinite(made.begin(47, 4).log_q([47, 4, 5])[:, list(SHARED)]).all()
    made.extend([47, 4], None)
    made.begin(3, 4)
    assert made._read == [1, SHARED[4]]


def test_the_same_tokens_under_other_numbers_are_the_same_draft_model():
    """All tokens shared, in another order: the drafts of the model without translation."""
    order = torch.randperm(toys.VOCABULARY, generator=torch.Generator().manual_seed(2))
    moved = copy.deepcopy(toys.draft_model())
    for part in (moved.get_input_embeddings(), moved.get_output_embeddings()):
        weight = part.weight.data.clone()
        part.weight.data[order] = weight
    shared = dict(enumerate(order.tolist()))
    found = [
        toys.run(Decoder("m", each, best_first), 40, budget=9).rounds
        for each in (
            LmDrafter(moved, 5, translation(start=(), shared=shared)),
            toys.sps_drafter(),
        )
    ]
    assert [r.draft.tokens.tolist() for r in found[0]] == [
        r.draft.tokens.tolist() for r in found[1]
    ]


# ── folders ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> Path:
    """A target and three draft models with tokenizers of their own: two fit, one shares nothing."""
    folder = tmp_path_factory.mktemp("shelf")
    for seed, (name, each) in enumerate(vocabularies().items()):
        model = toys._make("llama", seed, each.size, "eager").float()
        model.generation_config.eos_token_id = None
        model.save_pretrained(folder / name)
        each.tokenizer.save_pretrained(folder / name)
    return folder


def text_of(made: Engine, method: str, **more) -> list[int]:
    request = RunRequest("The quick", method, max_new_tokens=24, **more)
    return [token for record in made.start(request) for token in record.committed]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", ["smaller", "other", "pieces"])
def test_a_draft_model_with_another_tokenizer_drafts(shelf, name, temperature):
    made = Engine(str(shelf / "target"), "cpu", shelf / name)
    made.check("sps")
    assert text_of(made, "sps", temperature=temperature) == text_of(
        made, "ar", temperature=temperature
    )
    drafted = made.method("sps").drafter
    assert drafted.covered is not None and drafted.translation is not None


def test_the_same_tokenizer_with_more_rows_is_translated_too(shelf, tmp_path):
    """As where one of two models was padded."""
    padded = toys._make("llama", 5, 400, "eager").float()
    padded.save_pretrained(tmp_path)
    vocabularies()["target"].tokenizer.save_pretrained(tmp_path)
    made = Engine(str(shelf / "target"), "cpu", tmp_path)
    assert len(made.method("sps").drafter.covered.ids) == vocabularies()["target"].size
    assert text_of(made, "sps") == text_of(made, "ar")
    same = Engine(str(shelf / "target"), "cpu", shelf / "target")
    assert same.method("sps").drafter.covered is None


def test_run_says_how_much_is_covered_and_so_does_doctor(shelf, tmp_path, capsys):
    words = ["--prompt", "The fox", "--max-new-tokens", "8", "--model", str(shelf / "target")]
    count = len(shared_tokens(*(vocabularies()[name] for name in ("target", "other"))))
    size = vocabularies()["target"].size
    assert main(["run", "sps", "--drafter", str(shelf / "other"), *words]) == 0
    assert f"sps drafts {count} of the target's {size} tokens" in capsys.readouterr().err
    preset = tmp_path / "mine.toml"
    preset.write_text(f'[mine]\ntarget = "{shelf}/target"\ndrafters = {{sps = "{shelf}/other"}}\n')
    assert main(["model", "doctor", str(preset)]) == 0
    printed = capsys.readouterr().out
    assert "opens as a drafter: sps, a model of its own, for any target that shares" in printed
    assert f"; drafts {count} of the target's tokens" in printed


def test_diagnose_asks_whether_the_tokenizer_is_another_models(shelf):
    """Where the two have as many tokens; and never by maps that such a model has not."""

    def trials(name):
        language = load_language(str(shelf / "target"), "cpu")
        made = Engine(str(shelf / "target"), "cpu", shelf / name).method("sps").drafter
        return made, [t for m in MISTAKES for t in m.trials(Subject(made, language, 40))]

    made, found = trials("smaller")
    assert not any("translated" in trial.name or "d2t" in trial.name for trial in found)
    target = vocabularies()["target"]
    made.translation = Translation(made.translation.shared, made.lm.config.vocab_size, (), 0, spell)
    subject = Subject(made, load_language(str(shelf / "target"), "cpu"), 40)
    (trial,) = [t for m in MISTAKES for t in m.trials(subject) if "translated" in t.name]
    with trial.change():
        assert made.translation is None and made.covered is None
    assert made.covered is not None and len(made.covered.ids) < target.size
