"""Training data and the fit: shards hold what the target computes, and a killed run resumes."""

import copy
import json
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from core.errors import UserError
from core.learning.corpus import Blocks, Corpus, draw_blocks
from core.learning.shards import (
    TOP_K,
    Document,
    folder_layers,
    read_shard,
    shard_layers,
    shard_paths,
    write_shard,
)
from core.learning.student import TrainingRun
from core.methods.dart import DartTrainingOptions
from core.methods.dart import training as dart
from core.methods.dart.model import save_official
from core.methods.loading import form_of
from core.methods.registry import drafter_trainings, find_drafter
from core.methods.treeflash.training import TreeFlashStudent
from core.samples import Sample
from core.train import fit as fitting
from core.train.collect import Collector, CollectSettings, collect
from core.train.fit import Fit
from core.train.simulate import trained_drafter
from tests.helpers import toys
from tests.helpers.training_toys import (
    ENDLESS,
    FEATURES,
    KINDS,
    PROMPTS,
    a_fit,
    a_student,
    collector_of,
    language_of,
    losses,
    owner_of_text,
    write_shards,
)


@pytest.fixture(scope="module")
def owner():
    return owner_of_text()


@pytest.fixture(scope="module")
def collector(owner):
    return collector_of(owner)


@pytest.fixture(scope="module")
def shards(collector, tmp_path_factory):
    return write_shards(collector, tmp_path_factory.mktemp("shards"))


def document(seed, length=12, width=8, layers=(0,)):
    generator = torch.Generator().manual_seed(seed)
    return Document(
        tokens=torch.randint(0, 50, (length,), generator=generator, dtype=torch.int32),
        answer=3,
        features=torch.randn(length, width, generator=generator).half(),
        top_ids=torch.randint(0, 50, (length, TOP_K), generator=generator, dtype=torch.int32),
        top_logp=torch.randn(length, TOP_K, generator=generator).half(),
        layers=layers,
    )


# ── shards ───────────────────────────────────────────────────────────────────────────────────────


def test_a_shard_round_trips(tmp_path):
    lengths = [12, 1, 40]
    documents = [document(seed, length, layers=(0, 2)) for seed, length in enumerate(lengths)]
    write_shard(tmp_path / "deep" / "a-00000.safetensors", documents)
    [path] = shard_paths(tmp_path / "deep")
    assert shard_layers(path) == (0, 2)
    for found, given in zip(read_shard(path), documents, strict=True):
        assert (found.answer, found.layers) == (given.answer, (0, 2)) and len(found) == len(given)
        for name in ("tokens", "features", "top_ids", "top_logp"):
            assert torch.equal(getattr(found, name), getattr(given, name))
            assert getattr(found, name).dtype == getattr(given, name).dtype


def test_an_interrupted_shard_is_no_shard(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_shard(tmp_path / "a-00000.safetensors", [document(0)])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_shards_with_different_layers_is_refused(tmp_path):
    for name in ("a-00000", "a-00001"):
        write_shard(tmp_path / f"{name}.safetensors", [document(0, layers=(0, 2))])
    assert folder_layers(tmp_path) == Corpus(tmp_path, 0).layers == (0, 2)
    write_shard(tmp_path / "b-00000.safetensors", [document(2, layers=(1, 2))])
    with pytest.raises(UserError, match="different layers"):
        _ = Corpus(tmp_path, 0).layers


def test_features_are_chosen_by_layer():
    made = document(0, layers=(0, 3))
    first, second = made.features.chunk(2, -1)
    assert torch.equal(
        made.features_after((3, 3, 0), 5), torch.cat([second, second, first], -1)[:5]
    )
    assert torch.equal(made.features_after((0, 3)), made.features)
    assert made.features_after(()).shape == (12, 0)
    with pytest.raises(UserError, match="no features of layer 2"):
        made.features_after((0, 2))


# ── collecting ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def eager(owner):
    """The same weights on Hugging Face's own attention."""
    made = copy.deepcopy(owner)
    made.set_attn_implementation("eager")
    return made


@torch.inference_mode()
def check_document(eager, found):
    """Features and top-K equal a plain forward on the same tokens, unpadded and alone."""
    out = eager(found.tokens[None].long(), output_hidden_states=True, use_cache=False)
    features = torch.cat([out.hidden_states[i + 1][0] for i in FEATURES], -1)
    torch.testing.assert_close(found.features.float(), features, rtol=2e-3, atol=2e-3)
    log_p = out.logits[0].log_softmax(-1)
    best = log_p.topk(TOP_K)
    torch.testing.assert_close(found.top_logp.float(), best.values, rtol=2e-3, atol=5e-3)
    own = log_p.gather(1, found.top_ids.long())
    torch.testing.assert_close(own, best.values, rtol=2e-3, atol=2e-3)
    return log_p


def test_generated_documents_hold_what_a_plain_forward_says(eager, collector):
    prompts = [collector.chat(p) for p in PROMPTS]
    documents = collector.answer(prompts, seed=1)
    assert len(documents) == 6
    for index, found in enumerate(documents):
        prompt = prompts[index // 2]
        assert found.tokens[: found.answer].tolist() == prompt
        assert len(found) > len(prompt)
        log_p = check_document(eager, found)
        if index % 2 == 0:  # temperature 0: every answer token is the argmax before it
            best = log_p[found.answer - 1 : -1].argmax(-1)
            assert best.tolist() == found.tokens[found.answer :].tolist()
    assert documents[0].tokens.tolist() != documents[1].tokens.tolist()


def test_read_documents_hold_what_a_plain_forward_says(eager, collector):
    samples = [Sample(p, "an answer " * n) for n, p in enumerate(PROMPTS, 1)]
    for found, sample in zip(collector.read(samples), samples, strict=True):
        prompt = collector.chat(sample.user)
        assert found.answer == len(prompt)
        assert toys.tokenizer().decode(found.tokens[found.answer : -1]) == sample.answer
        assert found.tokens[-1] == toys.tokenizer().eos_token_id
        check_document(eager, found)


def test_an_answer_that_is_read_in_part_does_not_end(collector):
    longest = 2 * collector.settings.max_new_tokens
    whole, cut = (Sample("hi", "a" * n) for n in (longest, longest + 1))
    found = [d.tokens[d.answer :].tolist() for d in collector.read([whole, cut])]
    eos = toys.tokenizer().eos_token_id
    assert found[0] == [*found[1], eos] and len(found[1]) == longest


def test_a_looping_answer_is_cut_where_it_is_to_be_learnt_only(owner, monkeypatch):
    monkeypatch.setattr("core.train.collect.is_loop", lambda *_, **__: True)
    settings = CollectSettings(FEATURES, (0.0,), max_new_tokens=70)
    made = {}
    for cut in (True, False):
        collector = Collector(language_of(owner), replace(settings, cut_loops=cut))
        collector.stop = set()
        (made[cut],) = collector.answer([collector.chat("hi")], seed=0)
    assert len(made[True]) - made[True].answer == 64
    assert len(made[False]) - made[False].answer == 70


@pytest.mark.parametrize("cut", [True, False])
def test_the_last_answers_of_a_batch_are_cut_where_that_may_be(eager, owner, monkeypatch, cut):
    """One of five goes on when the others have ended at their first token."""
    settings = CollectSettings(FEATURES, (0.0,) * 5, max_new_tokens=12, cut_last=cut)
    collector = Collector(language_of(owner), settings)
    stop: Any = toys.tokenizer().eos_token_id
    other = 65

    def drawn(best, *_):
        return torch.tensor([other, *[stop] * (len(best.ids) - 1)])

    monkeypatch.setattr("core.train.collect._draw", drawn)
    collector.stop = {stop}
    documents = collector.answer([collector.chat("hi")], seed=0)
    answers = [d.tokens[d.answer :].tolist() for d in documents]
    assert answers == [[other] * (1 if cut else 12), *[[stop]] * 4]
    for found in documents:
        check_document(eager, found)


def test_a_target_that_ends_no_user_turn_is_one_sentence(owner, monkeypatch):
    monkeypatch.setattr("core.train.collect._user_turn_head", lambda _: [65, 66])
    settings = CollectSettings(FEATURES, (1.0,) * 64, max_new_tokens=7)
    author = Collector(language_of(owner), settings)
    author.stop = set()
    with pytest.raises(UserError, match="ends no user turn"):
        author.synthesise(3, seed=0)


def test_the_same_seed_generates_the_same_text(collector):
    prompts = [collector.chat(PROMPTS[0])]
    one, two = (collector.answer(prompts, seed=5)[1].tokens for _ in "ab")
    other = collector.answer(prompts, seed=6)[1].tokens
    assert torch.equal(one, two) and not torch.equal(one, other)


def test_collecting_again_skips_finished_shards(collector, tmp_path):
    samples = [Sample(p) for p in PROMPTS * 2]
    first = list(collect(collector, samples, tmp_path, "s"))
    assert len(first) == 2 and all(first)
    paths = shard_paths(tmp_path)
    before = paths[0].read_bytes()
    paths[1].unlink()
    assert list(collect(collector, samples, tmp_path, "s")) == [0, first[1]]
    assert paths[0].read_bytes() == before and shard_paths(tmp_path) == paths


# ── fitting ──────────────────────────────────────────────────────────────────────────────────────


def killed(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(("kind", "share"), [("dflash", 0.8), ("treeflash", 0.97), ("dart", 0.85)])
def test_a_fit_lowers_the_loss_and_leaves_the_target_as_it_is(owner, shards, tmp_path, kind, share):
    before = {name: tensor.clone() for name, tensor in owner.state_dict().items()}
    seen = losses(a_fit(owner, shards, tmp_path, kind=kind), 60)
    assert all(loss >= 0 for loss in seen)
    assert sum(seen[-10:]) < share * sum(seen[:10])
    assert all(torch.equal(tensor, before[name]) for name, tensor in owner.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_fit_goes_on_exactly(owner, shards, tmp_path, kind):
    settings = replace(ENDLESS, save_every=6)
    whole = a_fit(owner, shards, tmp_path / "whole", settings, kind)
    expected = losses(whole, 11)
    first = a_fit(owner, shards, tmp_path / "cut", settings, kind)
    assert losses(first, 8) == expected[:8]  # killed two steps after the checkpoint
    second = a_fit(owner, shards, tmp_path / "cut", settings, kind)
    assert second.step == 6
    assert losses(second, 5) == expected[6:]
    trained = second.student.trained()
    assert trained.keys() == whole.student.trained().keys() == second.average.keys()
    for name, parameter in whole.student.trained().items():
        assert torch.equal(parameter, trained[name]), name
        assert torch.equal(whole.average[name], second.average[name]), name


def test_the_schedule_of_a_resumed_fit_follows_the_clock_it_had(
    owner, shards, tmp_path, monkeypatch
):
    """A step takes a second of this clock; the learning rate falls to zero in 20 of them."""
    clock = SimpleNamespace(perf_counter=map(float, count()).__next__)
    monkeypatch.setattr(fitting, "time", clock)
    settings = replace(ENDLESS, minutes=20 / 60, save_every=6)
    expected = losses(a_fit(owner, shards, tmp_path / "whole", settings), 99)
    assert len(expected) == 20
    first = a_fit(owner, shards, tmp_path / "cut", settings)
    assert losses(first, 14) == expected[:14]
    second = a_fit(owner, shards, tmp_path / "cut", settings)
    assert (second.step, second.seconds) == (12, 12.0)
    assert losses(second, 99) == expected[12:]
    whole, cut = (tmp_path / name / "checkpoint/model.safetensors" for name in ("whole", "cut"))
    assert whole.read_bytes() == cut.read_bytes()


def test_a_joint_training_saves_head_and_backbone_together(owner, shards, tmp_path):
    """So one that is killed midway leaves a backbone and a head that belong together."""
    student, beside = a_student(owner, "treeflash"), tmp_path / "backbone"
    joint = TreeFlashStudent(student.model, owner, beside)
    settings = replace(ENDLESS, save_every=2)
    losses(Fit(joint, Corpus(shards, 1), settings, tmp_path / "head"), 5)
    head = loaded("treeflash", tmp_path / "head" / "checkpoint").model.state_dict()
    for name, tensor in loaded("dflash", beside).state_dict().items():
        assert torch.equal(head[name], tensor), name


def loaded(kind, folder) -> Any:
    return form_of(find_drafter(kind)).load_model(folder, torch.float32, "cpu")


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_is_the_average_in_the_official_format(owner, shards, tmp_path, kind):
    fit = a_fit(owner, shards, tmp_path, kind=kind)
    before = {n: t.clone() for n, t in fit.student.model.state_dict().items()}
    losses(fit, 4)
    fit.save()
    for name, tensor in loaded(kind, tmp_path / "checkpoint").state_dict().items():
        expected = fit.average.get(name, before[name])  # what is frozen stays as it was
        assert torch.equal(tensor, expected.detach().bfloat16().float()), name
    assert any(not torch.equal(t, before[n]) for n, t in fit.average.items())


def test_treeflash_trains_its_head_and_nothing_else(owner, shards, tmp_path):
    fit = a_fit(owner, shards, tmp_path, kind="treeflash")
    assert set(fit.student.trained()) == {
        f"ar_approximation.{n}" for n in ("ug.weight", "ug.bias", "d.weight", "norm.weight")
    }
    before = copy.deepcopy(fit.student.model.model.state_dict())
    losses(fit, 5)
    for name, tensor in fit.student.model.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert fit.student.model.ar_approximation.d.weight.any(), "the head has left zero"


def test_an_interrupted_save_keeps_the_last_one(owner, shards, tmp_path, monkeypatch):
    fit = a_fit(owner, shards, tmp_path)
    losses(fit, 2)
    fit.save()

    def files():
        return {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    before = files()
    losses(fit, 2)
    monkeypatch.setattr("os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        fit.save()
    assert files() == before


FINISHED = replace(ENDLESS, minutes=1e-9)  # after one step


def test_a_fit_killed_in_its_last_save_is_not_done(owner, shards, tmp_path, monkeypatch):
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("core.models.checkpoint.save", killed)
        losses(a_fit(owner, shards, tmp_path, FINISHED), 9)
    again = a_fit(owner, shards, tmp_path, FINISHED)
    assert len(losses(again, 9)) == again.step == 1
    loaded("dflash", tmp_path / "checkpoint")


def test_a_finished_fit_that_is_resumed_has_its_checkpoint(owner, shards, tmp_path):
    losses(a_fit(owner, shards, tmp_path, FINISHED), 9)
    path = tmp_path / "checkpoint" / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])  # as a version before this one left it when it was killed
    assert losses(a_fit(owner, shards, tmp_path, FINISHED), 9) == []
    assert path.read_bytes() == whole


def test_a_fit_that_is_refused_leaves_the_folder_as_it_was(owner, shards, tmp_path):
    fit = a_fit(owner, shards, tmp_path)
    fit.save()
    before = (tmp_path / "recipe.json").read_bytes()
    with pytest.raises(UserError, match="other parts"):
        a_fit(owner, shards, tmp_path, replace(ENDLESS, lr=1.0), kind="dart")
    assert (tmp_path / "recipe.json").read_bytes() == before
    assert json.loads(before)["lr"] == ENDLESS.lr


def test_a_step_with_nothing_to_learn_keeps_the_weights_whole(owner, shards, tmp_path, monkeypatch):
    fit = a_fit(owner, shards, tmp_path)
    labels_of = fit.student.labels

    def empty(*given):
        labels = labels_of(*given)
        return replace(labels, weight=torch.zeros_like(labels.weight))

    monkeypatch.setattr(fit.student, "labels", empty)
    assert losses(fit, 2) == [0.0, 0.0]
    assert all(p.isfinite().all() for p in fit.student.trained().values())


def prompt_of(document):
    return tuple(document.tokens[: document.answer].tolist())


def answers(prompts, copies=2):
    """Documents as a batch of prompts is answered, each so many times."""
    made = []
    for seed in prompts:
        prompt = document(seed, 4).tokens[:3]
        for copy_of in range(copies):
            one = document(1000 * seed + copy_of, 30)
            made.append(replace(one, tokens=torch.cat([prompt, one.tokens[3:]])))
    return made


@pytest.fixture
def answered(tmp_path):
    """Two kinds of shards, 60 prompts of each, two answers to a prompt."""
    for kind, name in enumerate("ab"):
        for number in range(3):
            first = kind * 60 + number * 20
            made = answers(range(first, first + 20))
            write_shard(tmp_path / f"{name}-{number:05d}.safetensors", made)
    return tmp_path


def test_prompts_are_held_out_with_all_their_answers_and_the_same_in_every_run(answered):
    corpus, again = Corpus(answered, 8), Corpus(answered, 8)
    held = {prompt_of(d) for d in corpus.test}
    assert len(held) == len(corpus.test) == 8
    assert not held & {prompt_of(d) for d in corpus.train}
    assert len(corpus.train) == 2 * (120 - 8)
    assert all(map(corpus.holds_out, corpus.test)) and not any(map(corpus.holds_out, corpus.train))
    assert [prompt_of(d) for d in corpus.test] == [prompt_of(d) for d in again.test]
    of_a = {prompt_of(d) for p in answered.glob("a-*") for d in read_shard(p)}
    assert 1 <= len(held & of_a) <= 7  # of every kind of shard
    assert len(Corpus(answered, 48).test) == 10  # at most a twelfth


def test_shards_that_appear_later_leave_what_is_held_out_as_it_is(answered):
    corpus = Corpus(answered, 8)
    held, before = [prompt_of(d) for d in corpus.test], len(corpus.train)
    number = next(n for n in range(120) if prompt_of(answers([n], 1)[0]) in held)
    write_shard(answered / "c-00000.safetensors", answers([number, *range(200, 230)]))
    corpus.refresh()
    assert [prompt_of(d) for d in corpus.test] == held
    assert len(corpus.train) == before + 2 * 30


# ── students ─────────────────────────────────────────────────────────────────────────────────────


def randomised(student):
    """The student with random weights: a zero head or an identity hides a wrong input."""
    generator = torch.Generator().manual_seed(5)
    for parameter in student.model.parameters():
        noise = 0.2 * torch.randn(parameter.shape, generator=generator)
        parameter.data = (noise if parameter.ndim == 2 else 1 + noise).bfloat16().float()
    return student


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_trained_on_are_those_the_drafter_decodes_with(owner, shards, kind, tmp_path):
    """q (TreeFlash: q′ given the text's own tokens) at each depth, of two anchors at once."""
    student = randomised(a_student(owner, kind))
    student.save(tmp_path)
    found, everything = Corpus(shards, 0).train[1], torch.arange(toys.LANGUAGE_SIZE)
    anchors = torch.tensor([found.answer, found.answer + 4])
    with torch.inference_mode():
        rows = student.rows(Blocks(found, anchors))
        ours = student.head(everything)(rows).log_softmax(-1)
    drafter = trained_drafter(kind, language_of(owner), tmp_path)
    depths = student.max_depth
    assert depths == drafter.max_depth == (8 if kind == "eagle3" else 7)
    features, tokens = found.features_after(drafter.layers).float(), found.tokens.tolist()
    for anchor, mine in zip(anchors.tolist(), ours, strict=True):
        drafter.reset(len(found))
        drafter.extend(tokens[:anchor], features[:anchor])
        session = drafter.begin(tokens[anchor], 20)
        with torch.inference_mode():
            theirs = session.log_q(tokens[anchor : anchor + depths])
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_training_starts_from_a_checkpoint(owner, shards, tmp_path, kind):
    student, info = randomised(a_student(owner, kind)), drafter_trainings()[kind]
    student.save(tmp_path)
    run = TrainingRun(language_of(owner), tmp_path / "run", tmp_path)
    again = info.training.student(run, info.options(), Corpus(shards, 0))
    assert type(again) is type(student)
    for name, tensor in again.model.state_dict().items():
        assert torch.equal(tensor, student.model.state_dict()[name]), name


def test_a_head_of_its_own_is_not_trained_here(owner, shards, tmp_path):
    made = toys.dart_model(dtype=torch.bfloat16, vocab_size=259, draft_vocab_size=259)
    weight = owner.get_output_embeddings().weight
    save_official(made, weight, weight, tmp_path)
    run, training = TrainingRun(language_of(owner), tmp_path, tmp_path), dart.TRAINING
    with pytest.raises(UserError, match="head of its own"):
        training.student(run, DartTrainingOptions(), Corpus(shards, 0))


def test_darts_norm_applied_twice_starts_as_the_targets(owner):
    model, width = a_student(owner, "dart").model, 32
    x = torch.randn(4, width)
    twice = model.norm(model.norm(x))
    target = torch.nn.functional.rms_norm(x, (width,), owner.model.norm.weight, 1e-6)
    scale = (twice / target).median()
    torch.testing.assert_close(twice / scale, target, rtol=0.15, atol=0.15)


def test_drawn_anchors_lie_in_the_answers(shards):
    corpus = Corpus(shards, 0).train
    for seed in range(5):
        rng = torch.Generator().manual_seed(seed)
        for blocks in draw_blocks(corpus, 3, 6, rng):
            assert (blocks.anchors >= blocks.document.answer).all()
            assert (blocks.anchors < len(blocks.document) - 1).all()
            assert (blocks.anchors.diff() > 0).all()
