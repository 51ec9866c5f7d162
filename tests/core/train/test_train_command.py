"""The train command from prompts to report, shipping, and that a simulated run is a real one."""

from __future__ import annotations

import json
import math
import shutil
from itertools import product
from pathlib import Path

import pytest
import torch

from app import cli
from app.maintainers.ship import Gain, better, ship, units
from core.decoding.along import Setup
from core.decoding.decode import Decoder, decode
from core.decoding.request import Settings
from core.drafting.builders import Chain, OptTree, best_first
from core.learning.corpus import Blocks
from core.methods.dart.model import FORM as DART
from core.methods.dflash.model import FORM as DFLASH
from core.methods.dflash.training import DFlashStudent
from core.methods.treeflash.model import FORM as TREEFLASH
from core.methods.treeflash.training import TreeFlashStudent
from core.models.checkpoint import read_state
from core.models.language import Language, load_language
from core.rounds.round import Sampling
from core.samples import read_samples
from core.train.collect import Collector, CollectSettings
from core.train.evaluation import HeldOutText
from core.train.simulate import Score, score, simulate
from core.train.sources import Sources
from tests.helpers import toys
from tests.helpers.timing import usually
from tests.helpers.training_toys import train_words


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("train")


@pytest.fixture(scope="module")
def words(folder):
    return train_words(folder)


def test_a_text_is_taken_once_and_none_that_overlaps_the_held_out(tmp_path):
    words = "one two three four five six seven eight nine ten eleven twelve thirteen"
    lines = [{"prompt": "Why?"}, {"prompt": "Why?", "answer": "So."}, {"prompt": f"Say {words}."}]
    other = [{"prompt": "Why?", "source": "b"}, {"prompt": "How?"}]
    other += [{"prompt": "Which numbers?", "answer": f"These: {words}."}]
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl", "held-out.jsonl")]
    for path, some in zip(paths, (lines * 2, other, [{"prompt": words}]), strict=True):
        path.write_text("\n".join(map(json.dumps, some)))
    found = Sources(prompts=tuple(paths[:2]), held_out=paths[2]).samples(LANGUAGE)
    pairs = sorted((s.user, s.answer or "") for s in found)
    assert pairs == [("How?", ""), ("Why?", ""), ("Why?", "So.")]


def shard_times(out):
    return {p: p.stat().st_mtime_ns for p in (out / "shards").glob("*.safetensors")}


def read_report(out, kind):
    return json.loads((out / kind / "report.json").read_text())


@pytest.fixture(scope="module")
def backbone(words, folder):
    """The run's own DFlash drafter, trained first."""
    assert cli.main(words) == 0
    return folder / "run" / "dflash" / "checkpoint"


def with_kind(words, kind, *more):
    return [words[0], kind, *words[1:], *more]


def test_train_makes_a_drafter_and_a_report_and_resumes(words, folder, backbone):
    out = folder / "run"
    report = read_report(out, "dflash")
    assert report["steps"] > 0 and report["tokens"] > 500
    assert {row["sampling"] for row in report["scores"]} == {"greedy", "T=1"}
    names = {row["method"] for row in report["scores"]}
    assert names == {"chain", "best-first 16", "best-first 64"}
    for row in report["scores"]:
        assert 1 <= row["tau"] <= 4 and row["low"] is None
    config = DFLASH.load_config(backbone)
    assert (config.block_size, config.num_hidden_layers, config.target_layer_ids) == (4, 1, (0, 1))
    shards = shard_times(out)
    assert len(shards) == 3  # 40 prompts to answer in batches of 32, 30 answers to read
    assert cli.main(words) == 0
    again = read_report(out, "dflash")
    assert again["steps"] == report["steps"]  # the minutes were used up: nothing is trained again
    assert shards == shard_times(out)


@pytest.mark.parametrize("kind", ["treeflash", "dart"])
def test_other_drafters_train_on_the_same_shards_and_resume(words, folder, backbone, kind):
    out, more = folder / "run", ("--draft-length", "3")
    shards, before = shard_times(out), (backbone / "model.safetensors").read_bytes()
    assert cli.main(with_kind(words, kind, *more)) == 0
    report = read_report(out, kind)
    assert report["steps"] > 0
    assert {row["method"] for row in report["scores"]} == {"best-first 16", "best-first 64"}
    assert all(1 <= row["tau"] <= 5 for row in report["scores"])
    assert shard_times(out) == shards and (backbone / "model.safetensors").read_bytes() == before
    checkpoint = out / kind / "checkpoint"
    if kind == "dart":
        assert DART.load_checkpoint(checkpoint, torch.float32, "cpu").model.config.max_depth == 4
    else:
        found = TREEFLASH.load_model(checkpoint, torch.float32, "cpu")
        under = DFLASH.load_model(backbone, torch.float32, "cpu")
        for name, tensor in under.state_dict().items():
            assert torch.equal(found.model.state_dict()[name], tensor), name
    assert cli.main(with_kind(words, kind, *more)) == 0
    assert read_report(out, kind)["steps"] == report["steps"]


def test_a_head_and_its_backbone_learn_together_and_ship_together(words, folder, backbone):
    out = folder / "joint"
    for name in ("shards", KIND):
        shutil.copytree(folder / "run" / name, out / name)
    command = with_kind([*words, "--out", str(out)], "treeflash", "--joint")
    assert cli.main(command) == 0
    made = TREEFLASH.load_model(out / "treeflash" / "checkpoint", torch.float32, "cpu")
    beside, before = (DFLASH.load_model(f, torch.float32, "cpu") for f in (out / KIND, backbone))
    for name, tensor in beside.state_dict().items():
        assert torch.equal(made.model.state_dict()[name], tensor), name
    assert not torch.equal(beside.fc.weight, before.fc.weight)
    assert made.ar_approximation.d.weight.any()
    steps = read_report(out, "treeflash")["steps"]
    assert cli.main(command) == 0
    assert read_report(out, "treeflash")["steps"] == steps > 0


@pytest.mark.parametrize("first", [(), ("--joint",)])
def test_a_head_alone_does_not_go_on_from_both_nor_both_from_it(
    words, folder, backbone, first, capsys
):
    out = folder / f"first{len(first)}"
    shutil.copytree(folder / "run" / "shards", out / "shards")
    shutil.copytree(folder / "run" / KIND, out / KIND)
    command = with_kind([*words, "--out", str(out)], "treeflash")
    assert cli.main([*command, *first]) == 0
    state = (out / "treeflash" / "state.safetensors").read_bytes()
    assert cli.main([*command, *(() if first else ("--joint",))]) == 2
    assert "training of other parts" in capsys.readouterr().err.splitlines()[-1]
    assert (out / "treeflash" / "state.safetensors").read_bytes() == state


def test_a_switch_of_another_kind_is_refused(words, folder, capsys):
    assert cli.main([*words, "--out", str(folder / "alone"), "--joint"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.endswith("--joint is an option of treeflash, not of dflash")


@pytest.mark.parametrize("kind", ["treeflash", "dart"])
def test_a_trained_drafter_decodes(words, folder, backbone, kind, capsys):
    assert cli.main(with_kind(words, kind, "--draft-length", "3")) == 0
    capsys.readouterr()
    drafter = folder / "run" / kind / "checkpoint"
    more = [] if kind == "treeflash" else ["--set", "ngram_weight=0"]
    command = [
        "audit", kind, "--prompt", "hi", "--max-new-tokens", "20", "--budget", "9",
        "--model", words[2], "--drafter", str(drafter), *more,
    ]  # fmt: skip
    assert cli.main(command) == 0, capsys.readouterr().err
    assert "lossless: 2 comparisons, 40 tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    "more",
    [["--minutes", "0"], ["--draft-layers", "99"], ["--prompts", "--tasks", "0"],
     ["--draft-length", "0"], ["--block-size", "1"], ["--temperature", "0", "-1"],
     ["--temperature", "nan"], ["--tasks", "-1"], ["--gamma", "0"], ["--gamma", "nan"],
     ["--minutes", "nan"], ["--minutes", "inf"], ["--sequences", "0"], ["--anchors", "0"],
     ["--per-file", "-1"], ["--synthesise", "-1"], ["--batch", "0"], ["--lr", "nan"],
     ["--rank", "0"], ["--seed", "x"]],
)  # fmt: skip
def test_train_refuses_what_cannot_be(words, folder, more, capsys):
    assert cli.main([*words, "--out", str(folder / "other"), *more]) == 2
    assert "Traceback" not in capsys.readouterr().err
    assert not (folder / "other" / "dflash").exists()


def test_train_refuses_an_unknown_kind_and_a_missing_backbone(words, folder, backbone, capsys):
    assert cli.main(with_kind(words, "eagle")) == 2
    assert "eagle" in capsys.readouterr().err
    gone = with_kind(words, "treeflash", "--backbone", str(folder / "gone"))
    assert cli.main([*gone, "--out", str(folder / "elsewhere")]) == 2
    assert "gone" in capsys.readouterr().err.splitlines()[-1]


def test_treeflash_without_any_backbone_says_how_to_get_one(words, folder, capsys):
    assert cli.main([*with_kind(words, "treeflash"), "--out", str(folder / "bare")]) == 2
    assert "--backbone" in capsys.readouterr().err.splitlines()[-1]


# ── from a checkpoint, and into assets ───────────────────────────────────────────────────────────


def test_training_goes_on_from_a_checkpoint_whatever_shape_is_asked(words, folder, backbone):
    out = folder / "further"
    shutil.copytree(folder / "run" / "shards", out / "shards")
    more = ["--out", str(out), "--start", str(backbone), "--block-size", "7", "--minutes", "0.001"]
    assert cli.main([*words, *more, "--gamma", "2"]) == 0
    assert read_report(out, "dflash")["recipe"]["gamma"] == 2
    found, before = (DFLASH.load_model(f, torch.float32, "cpu") for f in (out / KIND, backbone))
    assert found.config == before.config
    assert 0 < change(found.fc.weight, before.fc.weight) < 0.1  # a step or two of warm-up


def change(new, old):
    """How far weights moved, relative to their norm."""
    return float((new - old).norm() / old.norm())


KIND = "dflash/checkpoint"


def test_treeflash_goes_on_from_its_head_on_the_runs_own_backbone(words, folder, backbone):
    assert cli.main(with_kind(words, "treeflash")) == 0
    out, head = folder / "again", folder / "run" / "treeflash" / "checkpoint"
    for name in ("shards", KIND):
        shutil.copytree(folder / "run" / name, out / name)
    other = DFLASH.load_model(out / KIND, torch.float32, "cpu")
    with torch.no_grad():
        other.fc.weight.mul_(1.5)
    DFLASH.save_model(other, out / KIND)
    more = ["--out", str(out), "--start", str(head), "--minutes", "0.001"]
    assert cli.main(with_kind([*words, *more], "treeflash")) == 0
    made = TREEFLASH.load_model(out / "treeflash" / "checkpoint", torch.float32, "cpu")
    old = TREEFLASH.load_model(head, torch.float32, "cpu")
    torch.testing.assert_close(made.model.fc.weight, old.model.fc.weight * 1.5, rtol=0.02, atol=0)
    moved, head_before = (part.ar_approximation.state_dict() for part in (made, old))
    assert 0 < change(moved["ug.weight"], head_before["ug.weight"]) < 0.1


def test_no_checkpoint_to_start_from_is_said(words, folder, backbone, capsys):
    for named in ("shipped", str(folder / "gone")):
        assert cli.main([*words, "--out", str(folder / "nowhere"), "--start", named]) == 2
        assert "Traceback" not in capsys.readouterr().err
    assert not (folder / "nowhere").exists()


@pytest.fixture
def trained(words, folder, backbone):
    for kind in ("treeflash", "dart"):
        assert cli.main(with_kind(words, kind, "--draft-length", "3")) == 0
    return folder / "run"


def shipping(words, run, into, *more):
    """Ship the run's drafters and return the gains that were judged."""
    prompts = words[words.index("--held-out") + 1]
    language = load_language(words[2], "cpu")
    held_out = read_samples(Path(prompts))
    return {g.kind: g for g in ship(language, run, held_out, into, *more or (False,))}


def test_what_is_better_ships_and_what_is_not_stays(words, trained, tmp_path, capsys):
    first = shipping(words, trained, tmp_path)
    assert {g.before for g in first.values()} == {None}
    assert {p.name for p in tmp_path.iterdir()} == {"dflash", "treeflash", "dart"}
    assert not TREEFLASH.load_model(tmp_path / "treeflash", torch.float32, "cpu").training
    assert "model.fc.weight" not in read_state(tmp_path / "treeflash")  # it is the one beside it
    times = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.safetensors")}
    capsys.readouterr()
    again = shipping(words, trained, tmp_path)
    for kind, gain in again.items():
        assert (
            gain.before == gain.after == first[kind].after
            and math.isnan(gain.low)
            and math.isnan(gain.high)
        )
    assert times == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.safetensors")}
    assert "replaced" not in capsys.readouterr().out


def test_a_worse_backbone_takes_the_head_beside_it_with_it(words, trained, tmp_path):
    shipping(words, trained, tmp_path)
    weak = DFLASH.load_model(tmp_path / "dflash", torch.float32, "cpu")
    with torch.no_grad():
        weak.fc.weight.zero_()
        weak.norm.weight.neg_()
    DFLASH.save_model(weak, tmp_path / "dflash", small=True)
    run = tmp_path / "run"
    for name in ("shards", "evaluation", KIND):
        shutil.copytree(trained / name, run / name)
    gains = shipping(words, run, tmp_path, True)  # only judged: the old head is judged on both
    assert set(gains) == {"dflash", "treeflash"}
    assert all(g.before is not None for g in gains.values())


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([(None, 2.0, None, None)], True),
        ([(2.0, 2.1, 0.05, 0.15)], True),
        ([(2.0, 2.1, -0.05, 0.25)], False),  # not sure
        ([(2.0, 2.2, 0.1, 0.3), (2.5, 2.6, -0.1, 0.3)], True),
        ([(2.0, 2.2, 0.1, 0.3), (2.5, 2.4, -0.3, 0.1)], False),  # the head beside it loses
        ([], False),
    ],
)
def test_when_a_unit_is_replaced(gains, expected):
    assert better([Gain("x", *g) for g in gains]) is expected


def test_drafters_that_share_weights_are_replaced_together():
    alone = ("dart", "sps", "eagle3", "medusa", "hydra", "mtp")
    assert units() == [["dflash", "treeflash"], *([one] for one in alone)]


# ── simulated rounds are a real run's ────────────────────────────────────────────────────────────

START, COUNT = (3, 1, 4, 1, 5), 80
LANGUAGE = Language("toy", toys.model(), toys.tokenizer(), None)


@pytest.fixture(scope="module")
def document():
    """The toy target's own greedy text, long enough for the last round's tree."""
    settings = CollectSettings((0, 1, 2), (0.0,), max_new_tokens=COUNT + 8, top_k=0)
    (made,) = Collector(LANGUAGE, settings).answer([list(START)], seed=0)
    assert len(made) - made.answer >= COUNT
    return made


def drafter_named(name, document):
    text = document.tokens.tolist()
    return {
        "dflash": toys.dflash_drafter,
        "treeflash": toys.treeflash_drafter,
        "dart": toys.dart_drafter,
        "by path": lambda: toys.PathDrafter([*text, *text]),
    }[name]()


def builder_named(name, document):
    made = {"chain": Chain(), "best-first": best_first, "opt-tree": OptTree()}
    made["continuity"] = toys.continuity(document.tokens.tolist()[:60])
    return made[name]


SIMULATED = (
    "dflash+chain", "dflash+best-first", "treeflash+best-first", "treeflash+opt-tree",
    "dart+best-first", "dart+continuity", "dflash+continuity", "by path+best-first",
)  # fmt: skip
WITH_BUDGETS = [*product(SIMULATED, (1, 7, 64))]


@pytest.mark.parametrize(("pair", "budget"), usually(WITH_BUDGETS[::2], WITH_BUDGETS))
def test_a_simulated_run_takes_the_rounds_of_a_real_one(pair, budget, document):
    name, _, builder = pair.partition("+")
    drafter, builder = drafter_named(name, document), builder_named(builder, document)
    target, settings = toys.target(layers=drafter.layers), Settings(budget, COUNT, Sampling())
    real = decode(target, Decoder(pair, drafter, builder), list(START), settings)
    lengths = tuple(r.accepted + 1 for r in real)
    assert max(lengths) > 1 or budget < 64
    found = simulate(LANGUAGE, drafter, document, [Setup(pair, builder, budget)], COUNT)
    assert found == {pair: lengths}


@pytest.mark.parametrize("name", ["treeflash", "by path"])
def test_setups_share_a_drafters_sessions_and_differ_by_what_they_build(name, document):
    drafter, texts = drafter_named(name, document), [HeldOutText("greedy", "", document)] * 2
    setups = [Setup(f"b {n}", best_first, n) for n in (1, 4, 16, 64)]
    together = score(LANGUAGE, drafter, texts, setups)
    for setup in setups:
        (alone,) = score(LANGUAGE, drafter, texts[:1], [setup]).runs[setup.name]
        assert list(together.runs[setup.name]) == [alone] * 2
    taus = [together.tau(setup.name) for setup in setups]
    assert taus == sorted(taus) and taus[0] < taus[-1]


def test_a_score_knows_its_tau_and_its_gain():
    found, base = Score({"a": [(2, 2), (3,)]}), Score({"a": [(1, 1), (3,)]})
    assert found.tau("a") == 7 / 3 and found.of([True, False]).tau("a") == 2
    assert all(map(math.isnan, found.gain(base, "a"))), "two texts give no interval"
    many, few = (Score({"a": [*each.runs["a"]] * 3}) for each in (found, base))
    low, high = many.gain(few, "a")
    assert low <= 7 / 3 - 5 / 3 <= high and few.gain(few, "a") == (0, 0)


def test_a_joint_step_is_about_q_and_about_q_prime(document):
    model = toys.treeflash_model(dtype=torch.float32).requires_grad_(True)
    joint = TreeFlashStudent(model, toys.model(), Path("beside"))
    blocks = Blocks(document, torch.tensor([document.answer, document.answer + 9]))
    labels = joint.labels(blocks, 4, torch.Generator(), 4.0)
    rows, depths = joint.rows(blocks), joint.max_depth
    assert rows.shape[1] == labels.ids.shape[1] == labels.weight.shape[1] == 2 * depths
    for part in (labels.ids, labels.p, labels.weight):
        assert torch.equal(part[:, :depths], part[:, depths:])
    plain = DFlashStudent(model.model, toys.model()).rows(blocks)
    torch.testing.assert_close(rows[:, :depths], plain)
    rows[:, depths:].sum().backward()
    assert model.model.fc.weight.grad is not None and model.model.fc.weight.grad.any()
    assert set(joint.trained()) == {name for name, _ in model.named_parameters()}
    head_alone = TreeFlashStudent(model, toys.model())
    torch.testing.assert_close(head_alone.rows(blocks), rows[:, depths:])
