"""The train command from prompts to report, and that its simulated τ is a real run's."""

from __future__ import annotations

import json

import pytest

from app import cli
from core import builders
from core.decode import Method, Settings, decode
from core.drafters.dflash import load_config
from core.train.collect import Collector, CollectSettings
from core.train.fit import TargetParts
from core.train.report import bootstrap
from core.train.simulate import CHAIN, rounds, score
from core.types import Sampling
from tests import toys
from tests.test_cli import save_toys


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("train")


@pytest.fixture(scope="module")
def words(folder):
    target, _ = save_toys(folder)
    prompts = folder / "prompts.jsonl"
    lines = [{"prompt": f"Say {i} words about ships."} for i in range(40)]
    lines += [{"question": f"{i} + {i}?", "answer": f"It is <<{i}+{i}={2 * i}>>{2 * i}. " * 3}
              for i in range(30)]  # fmt: skip
    prompts.write_text("\n".join(map(json.dumps, lines)))
    held_out = folder / "held-out.jsonl"
    held_out.write_text(json.dumps({"prompt": "Which of us is new?", "source": "chat"}) + "\n")
    return [
        "train", "--model", str(target), "--device", "cpu", "--prompts", str(prompts),
        "--held-out", str(held_out), "--out", str(folder / "run"), "--minutes", "0.05",
        "--draft-layers", "1", "--block-size", "4", "--target-layers", "0", "1",
        "--sequences", "2", "--anchors", "4",
    ]  # fmt: skip


def test_train_makes_a_drafter_and_a_report_and_resumes(words, folder, capsys):
    assert cli.main(words) == 0, capsys.readouterr().err
    out = folder / "run"
    report = json.loads((out / "report.json").read_text())
    assert report["steps"] > 0 and report["tokens"] > 500
    assert {row["sampling"] for row in report["scores"]} == {"greedy", "T=1"}
    assert all(1 <= row["ddtree 64"] <= 4 for row in report["scores"])
    config = load_config(out / "fit" / "checkpoint")
    assert (config.block_size, config.num_hidden_layers, config.target_layer_ids) == (4, 1, (0, 1))
    shards = {p: p.stat().st_mtime_ns for p in (out / "shards").glob("*.safetensors")}
    assert len(shards) == 3  # 40 prompts to answer in batches of 32, 30 answers to read
    assert cli.main(words) == 0
    again = json.loads((out / "report.json").read_text())
    assert again["steps"] == report["steps"]  # the minutes were used up: nothing is trained again
    assert shards == {p: p.stat().st_mtime_ns for p in (out / "shards").glob("*.safetensors")}


@pytest.mark.parametrize("more", [["--minutes", "0"], ["--draft-layers", "99"], ["--prompts"]])
def test_train_refuses_what_cannot_be(words, folder, more, capsys):
    assert cli.main([*words, "--out", str(folder / "other"), *more]) == 2
    assert "Traceback" not in capsys.readouterr().err


def text_of(model, tokenizer, prompt, count, depths, layers):
    """The toy target's own greedy text as a document, long enough for the last round's tree."""
    settings = CollectSettings(layers, (0.0,), max_new_tokens=count + depths + 1, top_k=0)
    (document,) = Collector(model, tokenizer, settings).answer([prompt], seed=0)
    return document


@pytest.mark.parametrize("budget", [CHAIN, 1, 7, 64])
def test_a_simulated_run_takes_the_rounds_of_a_real_one(budget):
    drafter = toys.dflash_drafter()
    network, layers = drafter.model, drafter.layers
    target = toys.target(layers=layers)
    prompt, count = [3, 1, 4, 1, 5], 80
    document = text_of(target.model, toys.tokenizer(), prompt, count, drafter.depths, layers)
    if len(document) - document.answer < count:
        pytest.skip("the toy's text ended in a loop")
    build = builders.best_first if budget else builders.chain
    settings = Settings(budget or 64, count, Sampling())
    real = [r.accepted + 1 for r in decode(target, Method("m", drafter, build), prompt, settings)]
    parts = TargetParts(target.model)
    result = score(network, parts, [document], [budget], new_tokens=count)
    assert result.rounds[budget] == (tuple(real),)


def test_rounds_jump_by_what_they_accept():
    assert rounds([2, 9, 1, 1, 3, 9], 6) == [2, 1, 1, 3]
    assert rounds([], 4) == []


def test_bootstrap_holds_the_estimate_and_shrinks_to_it():
    low, high = bootstrap([[2, 2, 3], [1, 1], [4]])
    assert low < 13 / 6 < high
    assert bootstrap([[2, 2]] * 5) == (2.0, 2.0)
