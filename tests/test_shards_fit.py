"""Training data and the fit: what is stored is what the target said, and a killed run goes on."""

import copy
from dataclasses import replace

import pytest
import torch

from core.drafters import dart, dflash, treeflash
from core.errors import UserError
from core.train import fit as fitting
from core.train.collect import Collector, CollectSettings, collect
from core.train.fit import Corpus, Fit, FitSettings, draw_blocks
from core.train.shards import TOP_K, Document, read_shard, shard_layers, shard_paths, write_shard
from core.train.students import (
    Blocks,
    DartStudent,
    DFlashStudent,
    TargetParts,
    TreeFlashStudent,
    depth_weights,
    initial_dart,
    initial_dflash,
    load_student,
)
from core.train.texts import Sample
from tests import toys

FEATURES = (0, 1, 2)  # what DFlash (0, 2) and DART (1, 1, 0) read
PROMPTS = ["hi", "tell me more", "a longer question about nothing"]


def document(seed, length=12, width=8):
    generator = torch.Generator().manual_seed(seed)
    return Document(
        tokens=torch.randint(0, 50, (length,), generator=generator, dtype=torch.int32),
        answer=3,
        features=torch.randn(length, width, generator=generator).half(),
        top_ids=torch.randint(0, 50, (length, TOP_K), generator=generator, dtype=torch.int32),
        top_logp=torch.randn(length, TOP_K, generator=generator).half(),
    )


# ── shards ───────────────────────────────────────────────────────────────────────────────────────


def test_a_shard_round_trips(tmp_path):
    documents = [document(seed, length) for seed, length in enumerate([12, 1, 40])]
    write_shard(tmp_path / "deep" / "a-00000.safetensors", documents, (0, 2))
    [path] = shard_paths(tmp_path / "deep")
    assert shard_layers(path) == (0, 2)
    for found, given in zip(read_shard(path), documents, strict=True):
        assert found.answer == given.answer and len(found) == len(given)
        for name in ("tokens", "features", "top_ids", "top_logp"):
            assert torch.equal(getattr(found, name), getattr(given, name))
            assert getattr(found, name).dtype == getattr(given, name).dtype


def test_an_interrupted_shard_is_no_shard(tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("core.train.shards.os.replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_shard(tmp_path / "a-00000.safetensors", [document(0)], (0,))
    assert shard_paths(tmp_path) == []


# ── collecting ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def owner():
    made = toys.language_model()
    made.generation_config.eos_token_id = toys.tokenizer().eos_token_id
    return made


@pytest.fixture(scope="module")
def collector(owner):
    settings = CollectSettings(FEATURES, (0.0, 1.0), batch=3, max_new_tokens=30, top_k=20)
    return Collector(owner, toys.tokenizer(), settings)


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
            told = log_p[found.answer - 1 : -1].argmax(-1)
            assert told.tolist() == found.tokens[found.answer :].tolist()
    assert documents[0].tokens.tolist() != documents[1].tokens.tolist()


def test_read_documents_hold_what_a_plain_forward_says(eager, collector):
    samples = [Sample(p, "an answer " * n) for n, p in enumerate(PROMPTS, 1)]
    for found, sample in zip(collector.read(samples), samples, strict=True):
        prompt = collector.chat(sample.user)
        assert found.answer == len(prompt)
        assert toys.tokenizer().decode(found.tokens[found.answer : -1]) == sample.answer
        assert found.tokens[-1] == toys.tokenizer().eos_token_id
        check_document(eager, found)


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
    kept = paths[0].read_bytes()
    paths[1].unlink()
    assert list(collect(collector, samples, tmp_path, "s")) == [0, first[1]]
    assert paths[0].read_bytes() == kept and shard_paths(tmp_path) == paths


# ── fitting ──────────────────────────────────────────────────────────────────────────────────────

ENDLESS = FitSettings(
    minutes=1e6, sequences=3, anchors=6, warmup=1, lr=3e-3, frequent=64, sampled=32,
    save_every=10**9, held_out=1, gamma=3.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def shards(collector, tmp_path_factory):
    where = tmp_path_factory.mktemp("shards")
    samples = [Sample(f"question {i}", f"answer {i} " * 8) for i in range(6)]
    list(collect(collector, samples, where, "read"))
    return where


SIZES = {"vocab_size": toys.LANGUAGE_SIZE, "intermediate_size": 48}
KINDS = ("dflash", "treeflash", "dart")


def a_student(owner, kind="dflash"):
    """Each drafter as training starts it, on shards that hold the features of every kind."""
    where = owner.device
    parts, config = TargetParts(owner), toys.dflash_config(mask_token_id=258, **SIZES)
    if kind == "dart":
        made = initial_dart(toys.dart_config(draft_vocab_size=toys.LANGUAGE_SIZE, **SIZES), owner)
        return DartStudent(made.to(where), parts, FEATURES, 4)
    torch.manual_seed(0)
    backbone = initial_dflash(config, owner, torch.arange(20, device=where)[None]).to(where)
    if kind == "dflash":
        return DFlashStudent(backbone, parts, FEATURES)
    return TreeFlashStudent(treeflash.initial_model(backbone).to(where), parts, FEATURES)


def a_fit(owner, shards, folder, settings=ENDLESS, kind="dflash"):
    torch.manual_seed(0)
    corpus = Corpus(shards, settings.held_out)
    return Fit(a_student(owner, kind), corpus, settings, folder)


def losses(fit, count):
    return [status.loss for status, _ in zip(fit.steps(), range(count), strict=False)]


@pytest.mark.parametrize(("kind", "share"), [("dflash", 0.8), ("treeflash", 0.97), ("dart", 0.85)])
def test_a_fit_lowers_the_loss(owner, shards, tmp_path, kind, share):
    seen = losses(a_fit(owner, shards, tmp_path, kind=kind), 60)
    assert all(loss >= 0 for loss in seen)
    assert sum(seen[-10:]) < share * sum(seen[:10])


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_fit_goes_on_exactly(owner, shards, tmp_path, kind):
    settings = replace(ENDLESS, save_every=6)
    whole = a_fit(owner, shards, tmp_path / "whole", settings, kind)
    expected = losses(whole, 11)
    first = a_fit(owner, shards, tmp_path / "cut", settings, kind)
    assert losses(first, 8) == expected[:8]  # killed two steps behind the checkpoint
    second = a_fit(owner, shards, tmp_path / "cut", settings, kind)
    assert second.step == 6
    assert losses(second, 5) == expected[6:]
    trained = second.student.trained()
    assert trained.keys() == whole.student.trained().keys() == second.average.keys()
    for name, parameter in whole.student.trained().items():
        assert torch.equal(parameter, trained[name]), name
        assert torch.equal(whole.average[name], second.average[name]), name


def test_what_lies_outside_the_folder_is_written_at_every_checkpoint(owner, shards, tmp_path):
    """So a joint training killed midway leaves a backbone and a head that belong together."""
    written = []
    corpus, settings = Corpus(shards, ENDLESS.held_out), replace(ENDLESS, save_every=2)
    fit = Fit(a_student(owner, "treeflash"), corpus, settings, tmp_path, written.append)
    losses(fit, 5)
    assert len(written) == fit.step // 2 > 1
    kept = loaded("treeflash", tmp_path / "checkpoint").state_dict()
    for name, tensor in written[-1].trained().items():
        assert torch.equal(kept[name], tensor.to(torch.bfloat16).float()), name


def loaded(kind, folder):
    if kind == "dart":
        return dart.load_checkpoint(folder, torch.float32, "cpu").model
    return {"dflash": dflash, "treeflash": treeflash}[kind].load_model(folder, torch.float32, "cpu")


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
    before = (tmp_path / "state.safetensors").read_bytes()
    losses(fit, 2)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting.os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        fit.save()
    assert (tmp_path / "state.safetensors").read_bytes() == before


def test_the_target_is_never_trained(owner, shards, tmp_path):
    before = {name: tensor.clone() for name, tensor in owner.state_dict().items()}
    losses(a_fit(owner, shards, tmp_path), 5)
    assert all(torch.equal(tensor, before[name]) for name, tensor in owner.state_dict().items())


def test_held_out_documents_are_not_trained_on(shards):
    corpus = Corpus(shards, 2)
    assert len(corpus.test) == 2 and len(corpus.train) == 4
    held = {tuple(d.tokens.tolist()) for d in corpus.test}
    assert not held & {tuple(d.tokens.tolist()) for d in corpus.train}


# ── students ─────────────────────────────────────────────────────────────────────────────────────


def randomised(student):
    """The student with random weights: a zero head or an identity hides a wrong input."""
    generator = torch.Generator().manual_seed(5)
    for parameter in student.model.parameters():
        noise = 0.2 * torch.randn(parameter.shape, generator=generator)
        parameter.data = noise if parameter.ndim == 2 else 1 + noise
    return student


def a_drafter(student, owner, **options):
    """The drafter that decodes with a student's network."""
    embedding, head = owner.get_input_embeddings(), owner.get_output_embeddings()
    if student.kind == "dart":
        head = dart.Head(head)
        return dart.DartDrafter(student.model, embedding, head, student.layers, **options)
    if student.kind == "dflash":
        return dflash.DFlashDrafter(student.model, embedding, head, **options)
    settled = treeflash.TreeFlashOptions(**options)
    return treeflash.TreeFlashDrafter(student.model, embedding, head, settled)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {}) for kind in KINDS),
        ("dflash", {"temperature": 0.5}),
        ("dart", {"temperature": 2.0}),
        ("treeflash", {"candidates": 3, "siblings": 5, "temperature": 0.7}),
    ],
)
def test_a_students_proposals_are_the_drafters_own(owner, shards, kind, options, tmp_path):
    """At several anchors of a text in one pass, against the drafter walking up to each."""
    randomised(a_student(owner, kind)).save(tmp_path)
    student = load_student(kind, tmp_path, owner, FEATURES, options)
    drafter, found = a_drafter(student, owner, **options), Corpus(shards, 0).train[0]
    anchors = torch.tensor([found.answer, found.answer + 1, found.answer + 9, len(found) - 1])
    wanted = drafter.layers
    parts = found.features.float().chunk(len(FEATURES), -1)
    features = torch.cat([parts[FEATURES.index(layer)] for layer in wanted], -1)
    roots = found.tokens[anchors].tolist()
    with torch.inference_mode():
        rows = student.plain_rows(Blocks(found, anchors))
        made = list(student.proposals(rows, roots, 20))
    for anchor, root, ours in zip(anchors.tolist(), roots, made, strict=True):
        drafter.reset(len(found))
        drafter.extend(found.tokens[:anchor].tolist(), features[:anchor])
        theirs = drafter.propose(root, 20).candidates
        ids, odds = theirs.ids[:, :20], theirs.log_q[:, :20]
        assert (ours.ids[:, :20] == ids).mean() > 0.98  # but for float32 ties
        torch.testing.assert_close(torch.from_numpy(ours.log_q[:, :20]), torch.from_numpy(odds),
                                   rtol=1e-3, atol=1e-3)  # fmt: skip
        if kind == "treeflash":
            for x in (ours, theirs):
                x.transitions.need_all()
            one, two = (torch.from_numpy(x.transitions.log_q) for x in (ours, theirs))
            assert one.shape[1:] == (options.get("candidates", 16), options.get("siblings", 16))
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_trained_on_are_those_behind_the_true_tokens(owner, shards, kind):
    """q (TreeFlash: q′ given the text's own tokens) at each depth, as decoding would say it."""
    student = randomised(a_student(owner, kind))
    drafter, found = a_drafter(student, owner), Corpus(shards, 0).train[1]
    anchor = found.answer + 4
    with torch.inference_mode():
        rows = student.rows(Blocks(found, torch.tensor([found.answer, anchor])))[1]
        ours = (rows @ student.parts.head.T).log_softmax(-1)
    parts = found.features.float().chunk(len(FEATURES), -1)
    features = torch.cat([parts[FEATURES.index(layer)] for layer in drafter.layers], -1)
    drafter.reset(len(found))
    drafter.extend(found.tokens[:anchor].tolist(), features[:anchor])
    proposal = drafter.propose(int(found.tokens[anchor]), 20)
    with torch.inference_mode():
        theirs = proposal.along(found.tokens[anchor : anchor + student.depths].tolist())
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_dart_starts_with_what_the_targets_last_layer_says(owner):
    model = a_student(owner, "dart").model
    last = owner.model.layers[-1]
    width = model.config.hidden_size
    assert torch.equal(model.fc.weight[:, -width:], torch.eye(width))
    assert not model.fc.weight[:, :-width].any()
    assert torch.equal(
        model.midlayer.self_attn.q_proj.weight[:, width:], last.self_attn.q_proj.weight
    )
    assert torch.equal(model.midlayer.mlp.up_proj.weight, last.mlp.up_proj.weight)
    x = torch.randn(4, width)
    once = model.norm(model.norm(x))
    target = torch.nn.functional.rms_norm(x, (width,), owner.model.norm.weight, 1e-6)
    scale = (once / target).median()
    torch.testing.assert_close(once / scale, target, rtol=0.15, atol=0.15)


def test_features_nobody_collected_are_one_sentence(owner, shards):
    student = a_student(owner, "dflash")
    student.features = (0, 1)
    with pytest.raises(UserError, match="layer 2"):
        student.rows(Blocks(Corpus(shards, 0).train[0], torch.tensor([5])))


@pytest.mark.parametrize("kind", KINDS)
def test_a_student_is_loaded_from_its_checkpoint(owner, tmp_path, kind):
    student = randomised(a_student(owner, kind))
    student.save(tmp_path)
    again = load_student(kind, tmp_path, owner, FEATURES)
    assert again.kind == kind and again.depths == student.depths == 7
    for name, tensor in again.model.state_dict().items():
        assert torch.equal(tensor, student.model.state_dict()[name].bfloat16().float()), name


def test_a_student_that_is_not_trained_here_is_one_sentence(owner, tmp_path):
    with pytest.raises(UserError, match="dflash, treeflash, dart"):
        load_student("eagle", tmp_path, owner, FEATURES)
    made = toys.dart_model(dtype=torch.bfloat16, vocab_size=259, draft_vocab_size=259)
    weight = owner.get_output_embeddings().weight
    dart.save_official(made, weight, weight, tmp_path)
    with pytest.raises(UserError, match="head of its own"):
        load_student("dart", tmp_path, owner, FEATURES)


def test_drawn_anchors_lie_in_the_answers(shards):
    corpus = Corpus(shards, 0).train
    for seed in range(5):
        for blocks in draw_blocks(corpus, ENDLESS, torch.Generator().manual_seed(seed)):
            assert (blocks.anchors >= blocks.document.answer).all()
            assert (blocks.anchors < len(blocks.document) - 1).all()
            assert (blocks.anchors.diff() > 0).all()


def test_depth_weights_fall_exponentially():
    weights = depth_weights(4, 2.0)
    assert weights[0] == 1
    torch.testing.assert_close(weights[1:] / weights[:-1], torch.full((3,), 0.60653))
