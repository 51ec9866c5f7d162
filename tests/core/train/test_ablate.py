"""Short trainings that differ in one thing: what each changes, and that none is made twice."""

from __future__ import annotations

import json

import pytest
import torch

from app import cli, command_line
from app.maintainers import ablate
from core.errors import UserError
from core.journal import Journal
from core.learning.corpus import Blocks, Corpus
from core.learning.shards import shard_paths
from core.learning.student import TrainingRun
from core.methods.registry import drafter_trainings
from core.models.language import load_language
from tests.helpers.toys_on_disk import save_toys

SOME = ("base", "1 layer", "block 4", "start: random weights", "loss: the text's own token")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A target, the train command's text of it, and prompts held out."""
    folder = tmp_path_factory.mktemp("ablate")
    target, _ = save_toys(folder)
    prompts = [{"prompt": f"Say {i} words about ships."} for i in range(34)]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    held_out = [{"prompt": f"Who of us is {of}?", "source": of} for of in ("new", "old")]
    (folder / "held-out.jsonl").write_text("\n".join(map(json.dumps, held_out)))
    words = ["--out", str(folder / "run"), "--prompts", str(folder / "prompts.jsonl")]
    sizes = ["--minutes", "0.001", "--draft-layers", "1", "--sequences", "1", "--anchors", "2"]
    assert cli.main(["train", "--model", str(target), "--device", "cpu", *words, *sizes]) == 0
    return folder


@pytest.fixture
def command(folder):
    """Run the script with these words beside the usual ones."""

    def run(*words):
        usual = [
            "--shards", str(folder / "run" / "shards"), "--out", str(folder / "work"),
            "--prompts", str(folder / "held-out.jsonl"), "--model", str(folder / "target"),
            "--device", "cpu", "--minutes", "0.005", "--every", "1",
        ]  # fmt: skip
        command_line.run(ablate.Options, ablate.main, "ablate", words=[*usual, *words])

    return run


INFO = drafter_trainings()["dflash"]
TRAINING = INFO.training
VARIANTS = ablate.variants(TRAINING, (0, 1, 2), [])


def test_variants_are_trained_judged_alike_and_not_trained_again(folder, command, capsys):
    table = folder / "work" / "table.jsonl"
    command("--only", *SOME)
    rows = ablate.rows_of(Journal(table))
    assert tuple(rows) == SOME
    for name, row in rows.items():
        assert row.steps > 0 and row.kl > 0
        longest = VARIANTS[name].options.get("block_size", 8)
        for setup in (ablate.CHAIN, ablate.TREE):
            texts = row.lengths[setup]
            assert len(texts) == 2 and all(1 <= n <= longest for text in texts for n in text)
            assert 1 <= row.score.tau(setup) <= longest
        both, each = row.score.tau(ablate.TREE), [row.tau_of(of) for of in ("new", "old")]
        assert sorted(row.sources) == ["new", "old"] and min(each) <= both <= max(each)
    assert rows["1 layer"].parameters < rows["block 4"].parameters == rows["base"].parameters
    printed, before = capsys.readouterr().out, table.read_bytes()
    assert all(f"| {name} |" in printed for name in (*SOME, "new | old"))
    command("--only", *SOME)
    assert table.read_bytes() == before
    assert capsys.readouterr().out == printed


def test_what_cannot_be_is_said(command, folder):
    with pytest.raises(UserError, match="no variant 'thicker'"):
        command("--only", "base", "thicker")
    for words in (("--minutes", "0.006"), ("--every", "2")):
        command("--only", "base")
        with pytest.raises(UserError, match="of other minutes or prompts"):
            command("--only", "base", *words)
    for words in (("--minutes", "nan"), ("--every", "0")):
        with pytest.raises(UserError):
            command(*words)
    with pytest.raises(UserError, match=r"gone\.jsonl cannot be read"):
        command("--prompts", str(folder / "gone.jsonl"))
    for name, why in (("run", "holds no training text"), ("target", "is not training text")):
        with pytest.raises(UserError, match=why):
            command("--shards", str(folder / name), "--out", str(folder / "other"))


def students(folder, *names):
    language = load_language(str(folder / "target"), "cpu", fast=False)
    corpus = Corpus(folder / "run" / "shards", 0)
    run, known = TrainingRun(language, folder), ablate.variants(TRAINING, corpus.layers, [])
    options = [INFO.options(**known[name].options) for name in names]
    return corpus, [TRAINING.student(run, some, corpus) for some in options]


def test_what_a_variant_changes_is_what_is_built(folder):
    names = ("base", "block 16", "features: the last layer's", "start: random weights")
    corpus, (base, long, last, random) = students(folder, *names)
    assert base.max_depth == 7 and long.max_depth == 15
    assert base.model.config.target_layer_ids == corpus.layers
    assert last.model.config.target_layer_ids == corpus.layers[-1:]
    own = random.model.layers[0].mlp.up_proj.weight
    assert not torch.equal(own, base.model.layers[0].mlp.up_proj.weight)


def test_learning_by_token_takes_the_token_of_the_text(folder):
    corpus, (student,) = students(folder, "base")
    document = max(corpus.train, key=len)
    last = len(document) - 2  # one token stands after it
    blocks = Blocks(document, torch.tensor([document.answer, last]))
    by_p, by_token = (student.labels(blocks, k, torch.Generator(), 4.0) for k in (4, 0))
    first = document.tokens[document.answer + 1 : document.answer + 1 + student.max_depth]
    assert by_token.ids[0, : len(first), 0].tolist() == first.tolist()
    assert by_token.p.eq(1).all() and by_token.ids.shape == (2, student.max_depth, 1)
    assert by_token.ids[1, 0, 0] == document.tokens[-1]
    assert by_token.weight[1].count_nonzero() == 1 < by_p.weight[1].count_nonzero() == 2
    assert ablate.variants(TRAINING, (0,), [])["loss: the text's own token"].fit == {"top_k": 0}


def prompts(documents):
    return {tuple(d.tokens[: d.answer].tolist()) for d in documents}


def test_a_mixture_is_a_folder_of_shards_and_leaves_out_what_is_held_out(folder, tmp_path, command):
    shards = folder / "run" / "shards"
    few, corpus = tmp_path / "few", Corpus(shards, 2)
    few.mkdir()
    for path in shard_paths(shards)[:1]:
        (few / path.name).symlink_to(path)
    held_out = prompts(corpus.test)
    mixed = ablate.corpus_of(ablate.TrainingVariant("few", text=few), shards, 2)
    there = prompts(Corpus(few, 0).train)
    assert prompts(mixed.train) == there - held_out and there & held_out
    assert [len(d) for d in mixed.test] == [len(d) for d in corpus.test]
    command("--texts", str(few), "--only", "base", "text: few")
    assert ablate.rows_of(Journal(folder / "work" / "table.jsonl"))["text: few"].steps > 0
    with pytest.raises(UserError, match="have the same name"):
        command("--texts", str(few), str(few))


def test_greedy_and_drawn_answers_are_distinguished(folder):
    shards = folder / "run" / "shards"
    whole, greedy, drawn = (
        ablate.corpus_of(ablate.TrainingVariant("", greedy=kind), shards, 0).train
        for kind in (None, True, False)
    )
    assert len(greedy) + len(drawn) == len(whole)
    assert all(map(ablate.is_greedy, greedy)) and not any(map(ablate.is_greedy, drawn))
    assert prompts(greedy) == prompts(whole), "every prompt was answered greedily, too"
