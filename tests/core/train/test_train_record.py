"""Text is made once: a later call continues it as it was made, or is refused."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace

import pytest

from app import cli
from app.command_line import parse, run
from app.commands import train
from app.maintainers import ship
from core.errors import UserError
from core.learning.shards import RECORD, check_record, read_record, read_shard, shard_paths
from core.learning.student import TrainingRun
from core.models.language import load_language
from core.samples import read_samples
from core.train import evaluation
from core.train.collect import CollectSettings
from core.train.options import TextOptions
from core.train.sources import Sources, make_shards
from tests.helpers.toys_on_disk import save_toys

SHORT = CollectSettings((0, 1), (0.0, 0.7), batch=2, max_new_tokens=6, cut_last=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A target and files of prompts."""
    folder = tmp_path_factory.mktemp("record")
    save_toys(folder)
    for name, word in (("prompts", "ships"), ("other", "boats"), ("held-out", "rafts")):
        lines = [{"prompt": f"Say {i} words about {word}.", "source": word} for i in range(7)]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (folder / "code").mkdir()
    return folder


@pytest.fixture(scope="module")
def language(place):
    return load_language(str(place / "target"), "cpu", fast=False)


def arguments(place, *words):
    """The train command's, beside those it always needs."""
    usual = ("--out", place / "run", "--model", place / "target")
    return parse(train.Options, [str(word) for word in (*usual, *words)], "train")


def chosen(args, shards):
    return Sources.chosen(args.set_of(TextOptions), args.model, shards)


def words_for(place):
    return ["--prompts", place / "prompts.jsonl", "--batch", 2, "--temperature", 0, 0.7,
            "--held-out", place / "held-out.jsonl"]  # fmt: skip


@pytest.fixture(scope="module")
def made(place, language):
    """The shards of a run."""
    shards = place / "run" / "shards"
    texts = chosen(arguments(place, *words_for(place)), shards)
    make_shards(language, SHORT, texts, shards)
    return shards


# ── training text ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--prompts", "other.jsonl"], "prompts"),
        (["--prompts", "prompts.jsonl", "other.jsonl"], "prompts"),
        (["--held-out", "other.jsonl"], "held-out"),
        (["--tasks", "3"], "tasks"),
        (["--tasks", "3"], "tasks"),
        (["--synthesise", "3"], "synthesise"),
        (["--code", "code"], "code"),
        (["--per-file", "3"], "per-file"),
        (["--batch", "8"], "batch"),
        (["--temperature", "0"], "temperatures"),
        (["--seed", "3"], "seed"),
        (["--model", "drafter"], "model"),
        (["--model", "drafter", "--seed", "3"], "model, seed"),
    ],
)
def test_other_text_than_is_there_is_refused(place, made, words, named):
    here = [place / word if (place / word).exists() else word for word in words]
    with pytest.raises(UserError, match=f"made with other values of {named}: "):
        chosen(arguments(place, *here), made)


def test_what_is_left_out_is_as_it_was(place, made):
    found = chosen(arguments(place), made)
    assert (found.batch, list(found.temperature), found.seed) == (2, [0.0, 0.7], 0)
    again = chosen(arguments(place, *words_for(place), "--seed", 0), made)
    assert again.batch == 2 and again.held_out == place / "held-out.jsonl"


def test_a_file_is_known_by_what_it_says(place, made):
    shutil.copy(place / "prompts.jsonl", place / "moved.jsonl")
    chosen(arguments(place, "--prompts", place / "moved.jsonl"), made)


def test_a_folder_older_than_records_is_taken_as_it_is(place, made, tmp_path):
    shutil.copytree(made, tmp_path / "old")
    (tmp_path / "old" / RECORD).unlink()
    words = ["--prompts", place / "other.jsonl", "--batch", 8]
    assert chosen(arguments(place, *words), tmp_path / "old").batch == 8
    assert not (tmp_path / "old" / RECORD).exists()


def test_a_resumed_collection_makes_every_text_once(place, language, tmp_path):
    texts = chosen(arguments(place, *words_for(place)), tmp_path)
    make_shards(language, SHORT, texts, tmp_path)
    for path in shard_paths(tmp_path)[2:]:
        path.unlink()  # as if it had been killed after the second shard
    again = chosen(arguments(place, "--held-out", place / "held-out.jsonl"), tmp_path)
    made = again.settings(SHORT.layers)
    assert (made.batch, made.temperatures) == (SHORT.batch, SHORT.temperatures)
    make_shards(language, SHORT, again, tmp_path)
    documents = [d for path in shard_paths(tmp_path) for d in read_shard(path)]
    prompts = Counter(tuple(d.tokens[: d.answer].tolist()) for d in documents)
    assert len(prompts) == 7 and set(prompts.values()) == {2}


def test_new_shards_hold_the_features_of_those_already_there(place, language, made, tmp_path):
    def layers(kind, shards, *words):
        args = arguments(place, kind, "--draft-layers", 1, *words)
        where = TrainingRun(language, tmp_path)
        return train.feature_layers(
            train.trainings()[kind].training, where, train.own_options(args), shards
        )

    other = ("--target-layers", 0, 2)
    assert layers("dflash", tmp_path, *other) == (0, 1, 2, 3)  # DART's 1 and Medusa's 3 too
    assert layers("dflash", made, "--target-layers", 0, 1) == (0, 1)
    assert layers("treeflash", made, *other) == (0, 1)
    with pytest.raises(UserError, match="no features of layer 2"):
        layers("dflash", made, *other)


def test_a_record_may_have_the_names_of_an_earlier_version(tmp_path):
    check_record(tmp_path, {"tasks": 3})  # without a record nothing differs
    (tmp_path / RECORD).write_text(json.dumps({"asks": 3, "layers": [0, 1]}))
    check_record(tmp_path, {"tasks": 3, "layers": (0, 1)})
    with pytest.raises(UserError, match="of tasks, layers, top-k"):
        check_record(tmp_path, {"tasks": 4, "layers": (1,), "top_k": 3})


def test_a_plan_killed_half_written_is_none(place, language, tmp_path, monkeypatch):
    texts = chosen(arguments(place, *words_for(place)), tmp_path)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("os.replace", killed)
        make_shards(language, SHORT, texts, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == []


# ── the texts that drafters are judged on ────────────────────────────────────────────────────────


@pytest.fixture
def evaluated(language, place, tmp_path, monkeypatch):
    """Make or read the texts in a folder: (prompts, layers) → texts."""
    monkeypatch.setattr(evaluation, "NEW_TOKENS", 4)
    monkeypatch.setattr(evaluation, "LONGEST_BLOCK", 2)

    def texts(name="prompts", layers=(0, 1), language=language):
        prompts = read_samples(place / f"{name}.jsonl")
        return evaluation.evaluation_texts(language, layers, prompts, tmp_path, ("greedy",))

    return texts


def test_texts_are_made_once_and_read_again(evaluated, tmp_path):
    first = evaluated()
    (path,) = shard_paths(tmp_path / "greedy")
    before = path.stat().st_mtime_ns
    again = evaluated()
    assert path.stat().st_mtime_ns == before and len(first) == len(again) == 7
    assert {t.source for t in again} == {"ships"}


def test_texts_made_otherwise_are_refused(evaluated, language):
    evaluated()
    with pytest.raises(UserError, match="other values of prompts: "):
        evaluated("other")
    with pytest.raises(UserError, match="other values of layers: "):
        evaluated(layers=(0, 2))
    with pytest.raises(UserError, match="other values of model: "):
        evaluated(language=replace(language, name="another"))


def test_texts_older_than_records_are_taken_if_they_can_be(evaluated, place, tmp_path):
    evaluated()
    (tmp_path / "greedy" / RECORD).unlink()
    assert len(evaluated()) == 7
    assert not (tmp_path / "greedy" / RECORD).exists()
    with pytest.raises(UserError, match="other prompts or layers"):
        evaluated(layers=(1, 2))
    lines = (place / "prompts.jsonl").read_text().splitlines()
    (place / "few.jsonl").write_text("\n".join(lines[:5]))
    with pytest.raises(UserError, match="other prompts or layers"):
        evaluated("few")


def test_texts_to_judge_on_are_not_cut(evaluated, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "NEW_TOKENS", 68)
    monkeypatch.setattr("core.train.collect.is_loop", lambda *_, **__: True)
    assert {len(t.document) - t.document.answer for t in evaluated()} == {70}
    record = read_record(tmp_path / "greedy")
    assert record["cut_loops"] is record["cut_last"] is False


# ── errors before anything heavy is done ──────────────────────────────────────────────────────────


@pytest.fixture
def no_model(monkeypatch):
    def loaded(*_, **__):
        raise AssertionError("the model is loaded")

    for module in ("core.models.language", "app.maintainers.ship", "core.decoding.engine"):
        monkeypatch.setattr(f"{module}.load_language", loaded)


@pytest.mark.parametrize(
    "words",
    [
        ["--prompts", "gone.jsonl"],
        ["--held-out", "gone.jsonl"],
        ["--code", "gone"],
        ["--start", "gone"],
        ["--backbone", "gone", "treeflash"],
    ],
)
def test_train_says_what_is_missing_before_it_loads(place, no_model, tmp_path, words, capsys):
    named = [words[0], str(tmp_path / words[1])]
    assert cli.main(["train", *words[2:], "--out", str(tmp_path), *named]) == 2
    error = capsys.readouterr().err
    assert str(tmp_path / "gone") in error and len(error.splitlines()) == 1


def test_shipping_says_what_is_missing_before_it_loads(made, no_model, tmp_path):
    words = ["--run", str(made.parent), "--prompts", str(tmp_path / "gone.jsonl")]
    with pytest.raises(UserError, match="cannot be read"):
        run(ship.Options, ship.main, "ship", words=words)


def test_no_training_text_is_said(place, language, tmp_path):
    with pytest.raises(UserError, match="no training text"):
        make_shards(language, SHORT, Sources(), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == []
