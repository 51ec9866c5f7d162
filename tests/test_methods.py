"""Methods by name: what is listed, pairs of parts, and a researcher's own file, everywhere."""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from app import cli
from core.drafting.builders import best_first, chain, OptTree
from core.methods.dart.search import ContinuitySearch, Weights
from core.methods.dart.drafter import load_checkpoint
from core.methods.dart.drafter import save_model as save_dart
from core.methods.dflash.drafter import load_model
from core.methods.treeflash.drafter import save_model as save_treeflash
from core.errors import UserError
from core.methods.registry import BUILDERS, DRAFTERS, Recipe, recipe, RECIPES, settle
from core.decoding.engine import Engine, RunRequest
from core.traces.reader import read_trace
from tests import toys
from tests.test_cli import options_for, save_toys


def one_sentence(words, action, *args):
    with pytest.raises(UserError, match=words) as error:
        action(*args)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


# ── names ────────────────────────────────────────────────────────────────────────────────────────


def test_listed_methods_are_built_of_listed_parts():
    assert list(RECIPES) == ["ar", "dflash", "ddtree", "treeflash", "dart"]
    for chosen in RECIPES.values():
        assert chosen.drafter is None or chosen.drafter in DRAFTERS
        assert chosen.builder is None or chosen.builder in BUILDERS
        assert chosen.title and chosen.about and 1 <= chosen.budget <= 1024
    assert recipe("dart") is RECIPES["dart"]
    assert RECIPES["dart"].budget == 59, "the paper's, without the root"


@pytest.mark.parametrize(("drafter", "builder"), list(product(DRAFTERS, BUILDERS)))
def test_every_drafter_takes_every_builder(drafter, builder):
    name = f"{drafter}+{builder}"
    chosen = recipe(name)
    assert (chosen.drafter, chosen.builder, chosen.title) == (drafter, builder, name)
    assert chosen.defaults == DRAFTERS[drafter].options | BUILDERS[builder].options
    assert recipe(name) is chosen, "what an engine has loaded for it is found again"


@pytest.mark.parametrize(
    "name",
    ["", "eagle", "DDTree", "ddtree+chain", "dart+", "+chain", "dart+chain+chain", "dart-chain",
     "dart + chain", "ar+chain", "chain+dart"],
)  # fmt: skip
def test_a_name_that_is_no_method_names_those_that_are(name):
    one_sentence("unknown method.*treeflash.*dart\\+best-first.*opt-tree.*\\.py", recipe, name)


def test_drafter_and_builder_options_are_told_apart():
    chosen = recipe("treeflash+continuity")
    assert set(chosen.drafter_options) == {"candidates", "siblings", "temperature"}
    assert "beam" in chosen.builder_options and "candidates" not in chosen.builder_options
    changed = Recipe("x", "treeflash", "opt-tree", options={"candidates": 4, "gain": 0.1})
    assert changed.drafter_options == {"candidates": 4, "siblings": 16, "temperature": 1.0}
    assert changed.builder_options == {"gain": 0.1}
    own = Recipe("x", lambda language: None, "continuity", options={"beam": 5, "depths": 3})
    assert own.drafter_options == {"depths": 3}, "a builder's option is not the drafter's"
    assert own.builder_options["beam"] == 5 and own.defaults["depths"] == 3


# ── options ──────────────────────────────────────────────────────────────────────────────────────


def test_options_settle_in_their_defaults_types():
    given = {"beam": "7", "ngram_weight": "0", "ngram-at-first": "no", "ngram": "~/x", "width": 3}
    settled = settle("dart", given)
    assert settled == RECIPES["dart"].defaults | {
        "beam": 7, "ngram_weight": 0.0, "ngram_at_first": False, "ngram": "~/x", "width": 3,
    }  # fmt: skip
    assert type(settled["beam"]) is int and type(settled["ngram_weight"]) is float
    assert settle("dart", {}) == RECIPES["dart"].defaults
    assert settle("ar", {}) == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [("yes", True), ("No", False), ("1", True), ("0", False), ("TRUE", True), (False, False)],
)
def test_truths_are_words(text, value):
    assert settle("dart", {"ngram_at_first": text})["ngram_at_first"] is value


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("ddtree", {"beam": "3"}, "ddtree has no option 'beam'.*temperature"),
        ("ar", {"beam": "3"}, "its options: none"),
        ("dart", {"beam": "many"}, "beam is a whole number.*'many'"),
        ("dart", {"beam": "2.5"}, "beam is a whole number"),
        ("dart", {"beam": 2.5}, "beam is a whole number"),
        ("dart", {"beam": "inf"}, "beam is a whole number"),
        ("dart", {"beam": "9" * 5000}, "beam is a whole number"),
        ("dart", {"epsilon": "small"}, "epsilon is a number"),
        ("dart", {"ngram_at_first": "maybe"}, "ngram_at_first is yes or no"),
        ("dart", {"": "1"}, "no option ''"),
    ],
)
def test_options_that_do_not_fit_are_named(name, given, words):
    with pytest.raises(UserError, match=words) as error:
        settle(name, given)
    assert "\n" not in str(error.value)


def test_a_request_is_checked_before_anything_is_loaded():
    asked = RunRequest("x", "dart", options=(("beam", "0x3"),))
    one_sentence("beam", asked.settings)
    assert RunRequest("x", "dart").settings().budget == 59
    assert RunRequest("x", "dart+best-first").settings().budget == 64


# ── a file of one's own ──────────────────────────────────────────────────────────────────────────

DRAFTER = '''
import numpy as np
from core.decoding.decode import Proposal
from core.methods import Recipe
from core.types import Candidates

class Repeater:
    """Says that the last token comes again."""
    layers = ()
    def __init__(self, language, depths, sure):
        self.depths, self.sure = depths, sure
    def reset(self, rows): ...
    def extend(self, tokens, features): ...
    def propose(self, root, width):
        log_q = np.full((self.depths, 2), np.log([self.sure, 1 - self.sure]), np.float32)
        return Proposal(Candidates(np.tile([root, 0], (self.depths, 1)), log_q))
'''
BUILDER = '''
from core.drafting.builders import grown
from core.methods import Recipe

def comb(candidates, text, budget):
    """The chain of best tokens, and the second best beside each of them."""
    nodes, above = [], 0
    for _ in range(len(candidates.ids)):
        nodes += [(above, 0), (above, 1)]
        above = len(nodes) - 1
    return grown(candidates, text, nodes[:budget])
'''
OWN = 'METHOD = Recipe("Own", Repeater, {builder}, 9, options={{"depths": 4, "sure": 0.75}})\n'
FILES = {
    "drafter": DRAFTER + OWN.format(builder='"best-first"'),
    "builder": BUILDER + 'METHOD = Recipe("Own", "dflash", comb, 9)\n',
    "both": DRAFTER + BUILDER + OWN.format(builder="comb"),
    "pair": 'from core.methods import Recipe\nMETHOD = Recipe("P", "dflash", "opt-tree")\n',
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("methods")
    save_toys(where)
    for name, source in FILES.items():
        (where / f"{name}.py").write_text(source)
    return where


@pytest.fixture(scope="module")
def toy(folder):
    drafter = str(folder / "drafter")
    return ["--model", str(folder / "target"), "--drafter", drafter, "--device", "cpu"]


@pytest.fixture
def call(capsys):
    def run(*words):
        capsys.readouterr()
        code = cli.main([str(word) for word in words])
        return (code, *capsys.readouterr())

    return run


@pytest.mark.parametrize("spelled", ["word", "option"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_ones_own_runs_where_a_name_does(call, toy, folder, name, spelled):
    file = folder / f"{name}.py"
    method = [file] if spelled == "word" else ["--method", file]
    words = ("--prompt", "hi", "--max-new-tokens", 24, "--json")
    code, out, err = call("run", *method, *words, *toy)
    assert code == 0, err
    plain = json.loads(call("run", "ar", *words, *toy)[1])
    done = json.loads(out)
    assert done["token_ids"] == plain["token_ids"] and done["method"] == str(file)
    assert done["budget"] == (64 if name == "pair" else 9)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_ones_own_is_audited(call, toy, folder, name):
    words = ("--prompt", "hi", "--max-new-tokens", 16, "--budget", 1, 7)
    code, out, err = call("audit", "--method", folder / f"{name}.py", *words, *toy)
    assert code == 0, err
    assert "lossless: 4 comparisons, 64 tokens" in out


def test_files_of_ones_own_are_benched_beside_listed_methods(call, toy, folder):
    words = ("--prompt", "hi", "--max-new-tokens", 8, "--budget", 4, "--repeats", 1, "--json")
    methods = [folder / "both.py", folder / "builder.py", "ddtree", "dflash+opt-tree"]
    code, out, err = call("bench", *methods, *words, "--set", "depths=2", *toy)
    assert code == 0, err
    names = [row["name"] for row in json.loads(out)["rows"]]
    assert names[3:] == ["both B=4", "builder B=4", "ddtree B=4", "dflash+opt-tree B=4"]


def test_a_files_options_are_set_and_logged(call, toy, folder, tmp_path):
    path = tmp_path / "t.jsonl"
    words = ("--prompt", "hi", "--max-new-tokens", 6, "--trace", path, "--set", "depths=2")
    code, _, err = call("run", folder / "drafter.py", *words, *toy)
    assert code == 0, err
    trace = read_trace(path)
    assert trace.header.settings["options"] == {"depths": 2, "sure": 0.75}
    assert trace.header.drafter["kind"] == "Repeater" and trace.header.drafter["depths"] == 2
    assert max(int(r.draft.depths.max()) for r in trace.rounds) == 2
    assert all(r.probe is None and r.target_probs is not None for r in trace.rounds)


def test_a_changed_file_is_read_again(tmp_path):
    file = tmp_path / "m.py"
    file.write_text(FILES["pair"])
    assert recipe(str(file)).title == "P"
    assert recipe(str(file)) is recipe(str(file))
    file.write_text(FILES["pair"].replace('"P"', '"Q"'))
    os.utime(file, ns=(1, 1))
    assert recipe(str(file)).title == "Q"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "defines no METHOD"),
        ("METHOD = 3", "defines no METHOD"),
        ("METHOD = 'ddtree'", "defines no METHOD"),
        ("1 / 0", "ZeroDivisionError"),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        ("def (", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("\x00", "m.py fails"),
        ("from core.methods import Recipe\nMETHOD = Recipe('x')", "TypeError"),
        ("from core.methods import Recipe\nMETHOD = Recipe('x', 'eagle', 'chain')", "'eagle'"),
        ("from core.methods import Recipe\nMETHOD = Recipe('x', 'dart', 'magic')", "'magic'"),
        ("from core.methods import Recipe\nMETHOD = Recipe('x', 'dart', None)", "needs a builder"),
        ("from core.methods import Recipe\nMETHOD = Recipe('x', None, 'chain')", "a drafter"),
        ("from core.methods import Recipe\nMETHOD = Recipe('x', 3, 'chain')", "names 3"),
        ("from core.methods import Recipe\nMETHOD = Recipe('x', 'dart', ['chain'])", "names"),
    ],
)
def test_a_file_that_is_no_method_is_one_sentence(call, tmp_path, source, words):
    file = tmp_path / "m.py"
    file.write_text(source)
    one_sentence(words, recipe, str(file))
    code, out, err = call("run", "--method", file, "--prompt", "x")
    assert code == 2 and out == "" and err.startswith("draftscope: ") and "Traceback" not in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("name", ["gone.py", "folder.py"])
def test_a_file_that_is_not_there_is_one_sentence(tmp_path, name):
    (tmp_path / "folder.py").mkdir()
    one_sentence("no method file", recipe, str(tmp_path / name))


# ── the engine ───────────────────────────────────────────────────────────────────────────────────


def an_engine(folder, kind):
    return Engine(str(folder / "target"), "cpu", folder / kind)


def test_a_drafter_is_loaded_once_for_all_its_builders(folder):
    engine = an_engine(folder, "drafter")
    names = ("ddtree", "dflash", "dflash+opt-tree", "dflash+continuity")
    methods = [engine.method(n, {"ngram_weight": 0} if "cont" in n else {}) for n in names]
    assert len({id(m.drafter) for m in methods}) == 1
    kinds = [best_first, chain, OptTree(), None]
    assert [m.builder for m in methods[:3]] == kinds[:3]
    assert isinstance(methods[3].builder, ContinuitySearch)
    again = engine.method("dflash+continuity", {"ngram_weight": 0})
    assert again.builder is methods[3].builder
    other = engine.method("ddtree", {"temperature": 2.0})
    assert other.drafter is not methods[0].drafter and other.drafter.temperature == 2.0


def test_options_reach_the_parts(folder):
    engine = an_engine(folder, "treeflash")
    method = engine.method("treeflash+opt-tree", {"candidates": 3, "siblings": 5, "gain": 0.5})
    options = method.drafter.conditioner.options
    assert (options.candidates, options.siblings, options.temperature) == (3, 5, 1.0)
    assert method.builder == OptTree(0.5)
    store = str(folder / "grams.safetensors")
    method = an_engine(folder, "dart").method("dart", {"ngram": store, "beam": 3, "width": 4})
    assert method.builder.weights == Weights(width=4, beam=3)
    assert method.builder.store.tokens == 49


@pytest.mark.parametrize("method", ["treeflash", "dart", "dart+best-first", "treeflash+chain"])
def test_every_method_is_audited_from_the_command_line(call, toy, method):
    words = ("--prompt", "hi", "--max-new-tokens", 20, "--budget", 3, 20, "--set")
    extra = "temperature=0.5"
    code, out, err = call("audit", method, *words, extra, *options_for(toy, method))
    assert code == 0, err
    assert "lossless: 4 comparisons, 80 tokens" in out


def test_a_run_of_each_method_is_logged_with_its_options_and_read_back(call, toy, tmp_path):
    for method in ("treeflash", "dart"):
        path = tmp_path / f"{method}.jsonl"
        words = ("--prompt", "hi", "--max-new-tokens", 12, "--budget", 9, "--trace", path)
        code, _, err = call("run", method, *words, *options_for(toy, method))
        assert code == 0, err
        trace = read_trace(path)
        assert trace.header.method == method and trace.header.drafter["kind"] == method
        assert trace.header.settings["options"].keys() == RECIPES[method].defaults.keys()
        assert len(trace.header.drafter["sha256"]) == 16
        record = trace.rounds[0]
        assert record.draft.notes and (record.draft.offers is None) == (method == "dart")
        ids = set(record.draft.tokens.tolist())
        if record.draft.offers is not None:
            ids |= set(record.draft.offers.ids.flatten().tolist())
        assert ids <= record.texts.keys(), "a replay needs every text it shows"
        assert call("validate", path)[0] == 0
        assert call("replay", path, "--round", 1)[0] == 0


# ── exporting ────────────────────────────────────────────────────────────────────────────────────


def same_weights(one: Path, two: Path) -> bool:
    a, b = (load_file(folder / "model.safetensors") for folder in (one, two))
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def test_a_dflash_drafter_is_exported_as_it_is(call, folder, tmp_path):
    code, out, err = call("export-checkpoint", tmp_path / "x", "--drafter", folder / "drafter")
    assert code == 0, err
    assert "official dflash format" in out and same_weights(folder / "drafter", tmp_path / "x")


def test_a_treeflash_drafter_is_exported_with_its_backbone(call, folder, tmp_path):
    model = toys.treeflash_model(2, dtype=torch.bfloat16)
    save_treeflash(model, tmp_path / "whole")
    from core.methods.dflash.drafter import save_model

    save_model(model.model, tmp_path / "dflash")
    save_treeflash(model, tmp_path / "treeflash", backbone="dflash")
    words = ("--kind", "treeflash", "--drafter", tmp_path / "treeflash")
    code, _, err = call("export-checkpoint", tmp_path / "out", *words)
    assert code == 0, err
    assert same_weights(tmp_path / "out", tmp_path / "whole")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert "backbone" not in config["treeflash_config"]
    assert load_model(tmp_path / "dflash", torch.float32, "cpu").config.depths == 7


def test_a_dart_drafter_is_exported_with_the_targets_embedding_and_head(call, folder, tmp_path):
    save_dart(
        toys.dart_model(dtype=torch.bfloat16, vocab_size=257, draft_vocab_size=257),
        tmp_path / "dart",
        small=True,
    )
    words = ("--kind", "dart", "--drafter", tmp_path / "dart", "--model", folder / "target")
    code, _, err = call("export-checkpoint", tmp_path / "out", *words)
    assert code == 0, err
    target = load_file(folder / "target" / "model.safetensors")
    found = load_checkpoint(tmp_path / "out", torch.bfloat16, "cpu")
    assert torch.equal(found.head, target["lm_head.weight"].bfloat16())
    state = load_file(tmp_path / "out" / "model.safetensors")
    expected = target["model.embed_tokens.weight"].bfloat16()
    assert torch.equal(state["embed_tokens.weight"], expected)
    code, _, err = call("export-checkpoint", tmp_path / "again", *words[:2], "--drafter",
                        tmp_path / "out", *words[4:])  # fmt: skip
    assert code == 2 and "official format already" in err
