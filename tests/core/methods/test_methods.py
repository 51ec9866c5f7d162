"""Methods by name: what is listed, pairs of parts, and a person's own file, everywhere."""

from __future__ import annotations

import json
import os
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from app.commands.options import method as asked
from core.decoding.decode import Decoder
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.drafting.builders import Chain, OptTree, best_first
from core.errors import UserError
from core.methods.dart import ContinuityOptions
from core.methods.dart import model as dart
from core.methods.dart.search import ContinuitySearch
from core.methods.dflash import model as dflash
from core.methods.method import (
    BY_DEPTH,
    BY_PREVIOUS,
    Method,
    Options,
    find_builder,
    find_drafter,
)
from core.methods.names import BUILDERS, DRAFTERS, METHODS
from core.methods.registry import built_in, find_method, listed, runnable
from core.methods.treeflash import model as treeflash
from core.models.presets import Value
from core.rounds.draft import Draft
from core.traces.reader import read_trace
from core.verification.rules import SpeculativeSampling
from tests.helpers import toys
from tests.helpers.toys_on_disk import options_for


def one_sentence(words, action, *args):
    with pytest.raises(UserError, match=words) as error:
        action(*args)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


def defaults(method: Method) -> Options:
    return {option.name: option.default for option in method.all_options}


# ── names ────────────────────────────────────────────────────────────────────────────────────────


def test_every_listed_name_is_declared_in_its_home():
    for name, method in listed().items():
        assert find_method(name) is built_in(name) is method
        assert method.title and method.about and 1 <= method.budget <= 1024
        assert RunRequest("x", name).resolved.settings.budget == method.budget
    assert find_method("dart").budget == 59, "the paper's, without the root"
    for names, lookup in ((DRAFTERS, find_drafter), (BUILDERS, find_builder)):
        for name in names:
            assert lookup(name).name == name and lookup(name).about
        one_sentence(f"'magic'.*{next(iter(names))}", lookup, "magic")


def test_a_drafter_without_weights_is_missed_before_anything_is_loaded(call):
    code, _, err = call("run", "dspark", "--prompt", "hi", "--model", "smollm2-135m")
    assert code == 2 and "no dspark drafter ships" in err and "loading weights" not in err


def needs_weights(method: Method) -> bool:
    return method.drafter_info is not None and method.drafter_info.checkpoint is not None


def test_what_a_model_can_run_by_default_needs_weights_that_are_known(tmp_path):
    every, bare = runnable("x/y", "a/drafter"), runnable("x/y")
    assert every == tuple(METHODS)
    free = {name for name, method in listed().items() if not needs_weights(method)}
    assert free >= {"ar", "pld", "suffix", "ngram-mod", "lookahead"}
    default = "ddtree"
    assert bare == tuple(name for name in METHODS if name in free or name == default)
    shipped = runnable("smollm2-135m")
    weightless = {"eagle2", "peagle", "dspark", "dflash2", "xpress", "domino"}
    weightless.add("gemma4-assistant")
    assert set(every) - set(shipped) == weightless
    (tmp_path / "p.toml").write_text('[m]\ntarget = "x/y"\ndrafters.eagle2 = "a/b"\n')
    assert set(runnable(str(tmp_path / "p.toml"))) - set(bare) == {"eagle2"}


@pytest.mark.parametrize(("drafter", "builder"), list(product(DRAFTERS, BUILDERS)))
def test_every_drafter_goes_with_every_builder(drafter, builder):
    name = f"{drafter}+{builder}"
    method = find_method(name)
    assert (method.drafter, method.builder, method.title) == (drafter, builder, name)
    assert method.drafter_info is find_drafter(drafter)
    assert method.builder_info is find_builder(builder)
    assert method.all_options == method.drafter_options + method.builder_options
    assert find_method(name) is method, "what an engine has loaded for it is found again"


@pytest.mark.parametrize(
    "name",
    [
        *("", "eagle", "DDTree", "dart+", "+chain", "dart+chain+chain"),
        *("dart-chain", "dart + chain", "ar+chain", "chain+dart"),
    ],
)
def test_a_name_that_is_no_method_names_those_that_are(name):
    one_sentence("unknown method.*treeflash.*dart.*opt-tree.*\\.py", find_method, name)
    assert built_in(name) is None


def test_a_name_that_nearly_is_a_method_says_what_to_write(tmp_path):
    said = "ddtree has a builder of its own: write dflash[+]chain"
    one_sentence(said, find_method, "ddtree+chain")
    one_sentence("is a file or a folder.*`report` says what traces show", asked, str(tmp_path))


# ── options ──────────────────────────────────────────────────────────────────────────────────────

PAIRS = [find_method(f"{drafter}+{builder}") for drafter, builder in product(DRAFTERS, BUILDERS)]
OPTIONS = {o.name: (method, o) for method in PAIRS for o in method.all_options}


def out_of_range(option):
    """Values next to what an option may be, and of other kinds."""
    if option.type is str:
        return []
    bad = ["2.5", 2.5, "inf", "0x3", "9" * 5000] if option.type is int else []
    if (limits := option.range) is not None:
        step = 1 if option.type is int else 1e-3
        bad += [limits.low - step, limits.high + 1, float("inf")]
        bad += [limits.low] * limits.above + [limits.high] * limits.below
    return ["maybe", *bad]


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_says_what_it_is_and_refuses_what_is_out_of_its_range(name):
    method, option = OPTIONS[name]
    assert option.label and option.help
    for value in (option.default, str(option.default), option.collect or option.default):
        found = method.resolve({name.replace("_", "-"): value})[name]
        assert type(found) is option.type and str(found) == str(value)
    for value in out_of_range(option):
        one_sentence(f"the option {name} (is|must be)", method.resolve, {name: value})


def test_options_resolve_in_their_defaults_types():
    own = {"beam": "7", "ngram_weight": "0", "ngram-at-first": "no", "ngram": "~/x", "width": 3}
    found = find_method("dart").resolve(own)
    changed = {"beam": 7, "ngram_weight": 0.0, "ngram_at_first": False, "ngram": "~/x", "width": 3}
    assert found == {**defaults(find_method("dart")), **changed}
    assert type(found["beam"]) is int and type(found["ngram_weight"]) is float
    assert (
        find_method("dart").resolve({}) == defaults(find_method("dart"))
        and find_method("ar").resolve({}) == {}
    )
    for word, value in {"yes": True, "No": False, "1": True, "0": False, "TRUE": True}.items():
        assert find_method("dart").resolve({"ngram_at_first": word})["ngram_at_first"] is value


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("ddtree", {"beam": "3"}, "DDTree has no option 'beam'.*temperature"),
        ("ar", {"beam": "3"}, "its options: none"),
        ("dart", {"": "1"}, "no option ''"),
        ("dart", {"beam": "many"}, "beam is a whole number.*'many'"),
        ("dart", {"epsilon": "small"}, "epsilon is a number"),
        ("dart", {"epsilon": 1.0}, "epsilon must be above 0 and below 1, not 1.0"),
        ("dart", {"ngram_at_first": "maybe"}, "ngram_at_first is yes or no"),
        ("treeflash", {"siblings": 0}, "siblings must be 1 to 1024, not 0"),
        ("dflash+opt-tree", {"gain": -1}, "gain must be at least 0, not -1.0"),
    ],
)
def test_options_that_do_not_fit_are_named(name, values, words):
    """And before anything is loaded."""
    one_sentence(words, find_method(name).resolve, values)
    one_sentence(words, RunRequest("x", name, options=tuple(values.items())).check)


def test_a_method_may_change_its_parts_defaults():
    method = Method("x", "treeflash", "opt-tree", options={"candidates": 4, "gain": 1})
    assert defaults(method) == {"candidates": 4, "siblings": 16, "temperature": 1.0, "gain": 1.0}
    assert [o.name for o in method.builder_options] == ["gain"]
    assert method.resolve({"gain": 0.5})["gain"] == 0.5, "its type stays the part's"


# ── what its nodes show ──────────────────────────────────────────────────────────────────────────

drafter_of = cache(lambda kind: toys.DRAFTERS[kind]())
FACTS = toys.SimpleNamespace(name="toy", vocabulary=toys.VOCABULARY, stop_ids=frozenset())


FITTING = [  # a beam reads lists by depth
    m
    for m in PAIRS
    if m.builder != "continuity" or m.drafter_info.states in (BY_DEPTH, BY_PREVIOUS)
]


@pytest.mark.parametrize("method", FITTING, ids=lambda method: method.title)
def test_a_nodes_explanation_speaks_of_the_notes_its_draft_has(method):
    """Every sentence has its fields; no draft has a note that nothing explains."""
    values = method.resolve({"ngram_weight": 0} if "continuity" in method.title else {})
    decoder = Decoder("x", drafter_of(method.drafter), method.make_builder(FACTS, values))
    draft, explain = toys.run(decoder, 2).rounds[0].draft, method.explain
    named = {note.name for note in explain.notes} | {mark.note for mark in explain.marks}
    assert draft.notes.keys() >= named | {*explain.terms, *filter(None, [explain.versus])}
    assert method.drafter != "treeflash" or method.builder == "continuity" or named
    assert explain.layout in ("path", "versus", "terms")
    fields = {"rank": "2nd", "depth": 3, "parent": "x", **values}
    sentences = [explain.lead, explain.childless, *(note.help for note in explain.notes)]
    for sentence in (*sentences, *(mark.help for mark in explain.marks)):
        assert "{" not in sentence.format(**fields)


# ── a file of one's own ──────────────────────────────────────────────────────────────────────────

DRAFTER = '''
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from core.drafting.session import Drafter, FactorisedSession, PathSession
from core.methods.method import BY_PATH, DrafterInfo, Method, Range, option
from core.rounds.draft import Candidates


@dataclass(frozen=True)
class Options:
    depths: int = option(4, "how deep it drafts", Range(1, 9))
    sure: float = option(0.75, "its q that a token comes again", Range(0, 1, above=True))


class Repeater(Drafter):
    """Says that the last token comes again."""

    def __init__(self, language, folder, options):
        self.max_depth, self.sure, self.size = options.depths, options.sure, language.vocabulary

    def reset(self, capacity): ...
    def extend(self, tokens, features): ...

    def begin(self, root, width):
        log_q = np.full((self.max_depth, 2), np.log([self.sure, 1 - self.sure]), np.float32)
        return FactorisedSession(Candidates(np.tile([root, 0], (self.max_depth, 1)), log_q))
'''
PATH = '''
class Walk(PathSession):
    """Behind a node comes the sum of the tokens of its path, or that and one."""

    def __init__(self, root, max_depth, width, size):
        super().__init__(root, max_depth, width)
        self.size, self.sums = size, []

    def score(self, tokens, parents):
        rows = torch.full((len(tokens), self.size), -50.0)
        for row, (token, parent) in zip(rows, zip(tokens, parents)):
            self.sums.append(token + (self.sums[parent] if parent >= 0 else 0))
            row[self.sums[-1] % self.size], row[(self.sums[-1] + 1) % self.size] = -0.5, -1.0
        return rows.log_softmax(-1)


class Walks(Repeater):
    def begin(self, root, width):
        return Walk(root, self.max_depth, width, self.size)
'''
BUILDER = '''
from core.drafting.builders import grow
from core.methods.method import Method


def comb(session, text, budget):
    """The best token of every depth, and the second best beside it."""
    nodes, above = [], 0
    for _ in range(session.max_depth):
        nodes += [(above, 0), (above, 1)]
        above = len(nodes) - 1
    return grow(session, text, nodes[:budget])
'''
OWN = 'METHOD = Method("Own", DrafterInfo("own", "mine", {}, Options), {}, 9)\n'
FILES = {
    "drafter": DRAFTER + OWN.format("Repeater", '"best-first"'),
    "path": DRAFTER + PATH + OWN.format("Walks", '"best-first"'),
    "builder": BUILDER + 'METHOD = Method("Own", "dflash", comb, 9)\n',
    "both": DRAFTER + BUILDER + OWN.format("Repeater", "comb"),
    "pair": 'from core.methods.method import Method\nMETHOD = Method("P", "dflash", "opt-tree")\n',
}


@pytest.fixture(scope="module")
def folder(toys_folder):
    for name, source in FILES.items():
        (toys_folder / f"{name}.py").write_text(source)
    return toys_folder


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_ones_own_runs_where_a_name_does(call, toy, folder, name):
    file = folder / f"{name}.py"
    words = ("--prompt", "hi", "--max-new-tokens", 24, "--json")
    code, out, err = call("run", file, *words, *toy)
    assert code == 0, err
    plain = json.loads(call("run", "ar", *words, *toy)[1])
    done = json.loads(out)
    assert done["token_ids"] == plain["token_ids"] and done["method"] == str(file)
    assert done["budget"] == (64 if name == "pair" else 9)
    words = ("--prompt", "hi", "--max-new-tokens", 16, "--budget", 1, 7)
    code, out, err = call("audit", "--methods", file, *words, *toy)
    assert code == 0, err
    assert "lossless: 4 comparisons, 64 tokens" in out


@pytest.mark.parametrize(("name", "option"), [("pld", "copied"), ("sps", "depth")])
def test_a_chains_own_budget_cuts_no_depth_that_can_be_set(name, option):
    method = find_method(name)
    (own,) = (o for o in method.all_options if o.name == option)
    assert own.range and method.budget >= own.range.high


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
    assert trace.header.drafter["kind"] == "own" and trace.header.drafter["depths"] == 2
    assert max(int(r.draft.depths.max()) for r in trace.rounds) == 2
    assert all(r.probe is None and r.target_probs is not None for r in trace.rounds)


def test_a_changed_file_is_read_again(tmp_path):
    file = tmp_path / "m.py"
    file.write_text(FILES["pair"])
    assert find_method(str(file)).title == "P" and find_method(str(file)) is find_method(str(file))
    file.write_text(FILES["pair"].replace('"P"', '"Q"'))
    os.utime(file, ns=(1, 1))
    assert find_method(str(file)).title == "Q"


IMPORT = "from core.methods.method import Method\n"


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
        (IMPORT + "METHOD = Method()", "TypeError"),
        (IMPORT + "METHOD = Method('x', 'eagle', 'chain')", "'eagle'"),
        (IMPORT + "METHOD = Method('x', 'dart', 'magic')", "'magic'"),
        (IMPORT + "METHOD = Method('x', 'dart', None)", "needs a builder"),
        (IMPORT + "METHOD = Method('x', None, 'chain')", "a drafter"),
        (IMPORT + "METHOD = Method('x', 3, 'chain')", "drafter is neither"),
        (IMPORT + "METHOD = Method('x', 'dart', ['chain'])", "builder must be a name"),
        (IMPORT + "METHOD = Method('x', 'dart', 'chain', options={'magic': 1})", "'magic'"),
        (IMPORT + "METHOD = Method('x', 'dart', 'opt-tree', options={'gain': -1})", "gain must be"),
    ],
)
def test_a_file_that_is_no_method_is_one_sentence(call, tmp_path, source, words):
    file = tmp_path / "m.py"
    file.write_text(source)
    one_sentence(words, find_method, str(file))
    code, out, err = call("run", "--methods", file, "--prompt", "x")
    assert code == 2 and out == "" and err.startswith("draftscope: ") and "Traceback" not in err
    assert len(err.splitlines()) == 1


def test_a_file_that_is_not_there_is_one_sentence(tmp_path):
    (tmp_path / "folder.py").mkdir()
    for name in ("gone.py", "folder.py"):
        one_sentence("no method file", find_method, str(tmp_path / name))


# ── the engine ───────────────────────────────────────────────────────────────────────────────────


def an_engine(folder, kind):
    return Engine(str(folder / "target"), "cpu", folder / kind)


def loaded(engine: Engine, name: str, **options: Value) -> Any:
    return engine.method(name, options)


def test_a_drafter_is_loaded_once_for_all_its_builders(folder):
    engine = an_engine(folder, "drafter")
    methods = [loaded(engine, name) for name in ("ddtree", "dflash", "dflash+opt-tree")]
    assert [m.builder for m in methods] == [best_first, Chain(), OptTree()]
    one, again = (loaded(engine, "dflash+continuity", ngram_weight=0) for _ in "ab")
    assert isinstance(one.builder, ContinuitySearch) and one.builder is again.builder
    assert len({id(m.drafter) for m in (*methods, one, again)}) == 1
    other = loaded(engine, "ddtree", temperature=2.0)
    assert other.drafter is not one.drafter and other.drafter.temperature == 2.0


def test_options_reach_the_parts(folder):
    engine = an_engine(folder, "treeflash")
    method = loaded(engine, "treeflash+opt-tree", candidates=3, siblings=5, gain=0.5)
    options = method.drafter.conditioner.options
    assert (options.candidates, options.siblings, options.temperature) == (3, 5, 1.0)
    assert method.builder == OptTree(0.5)
    store = str(folder / "grams.safetensors")
    method = loaded(an_engine(folder, "dart"), "dart", ngram=store, beam=3, width=4)
    assert method.builder.options == ContinuityOptions(width=4, beam=3, ngram=store)
    assert method.builder.store.tokens == 49


# The assistant drafts for a Gemma 4 target alone.
@pytest.mark.parametrize("kind", sorted(DRAFTERS.keys() - {"gemma4-assistant"}))
def test_a_files_verification_rule_serves_every_drafter(folder, tmp_path, kind):
    file = tmp_path / "m.py"
    file.write_text(
        "from core.drafting.builders import SampledChain\n"
        "from core.methods.method import Method\n"
        "from core.verification.rules import SpeculativeSampling\n"
        f"METHOD = Method('S', '{kind}', SampledChain(), 4, rule=SpeculativeSampling)\n"
    )
    engine = an_engine(folder, "drafter" if kind == "dflash" else kind)
    run = engine.start(RunRequest("hi", str(file), max_new_tokens=12, temperature=1.0))
    assert sum(len(record.committed) for record in run) == 11
    assert loaded(engine, str(file)).rule is SpeculativeSampling


@pytest.mark.parametrize("method", ["treeflash", "dart", "dart+best-first", "treeflash+chain"])
def test_every_method_is_audited_from_the_command_line(call, toy, method):
    words = ("--max-new-tokens", 20, "--budget", 3, 20, "--set", "temperature=0.5")
    code, out, err = call("audit", method, "--prompt", "hi", *words, *options_for(toy, method))
    assert code == 0, err
    assert "lossless: 4 comparisons, 80 tokens" in out


@pytest.mark.parametrize("method", ["suffix", "suffix+chain", "ngram-mod"])
def test_a_method_that_looks_up_earlier_texts_is_audited_too(call, toy, tmp_path, method):
    (tmp_path / "earlier.txt").write_text("hi and hi and hi and " * 9)
    more = ("n_match=2", "n_min=1") if method == "ngram-mod" else ("min_token_prob=0",)
    words = ("--max-new-tokens", 20, "--budget", 3, 20, "--model", toy[1], "--device", "cpu")
    chosen = [w for each in (*more, f"earlier={tmp_path / 'earlier.txt'}") for w in ("--set", each)]
    code, out, err = call("audit", method, "--prompt", "hi and hi", *words, *chosen)
    assert code == 0, err
    assert "lossless: 4 comparisons, 80 tokens" in out
    code, _, err = call("audit", method, "--prompt", "hi", *words, "--set", "earlier=nowhere.txt")
    assert code == 2 and err.endswith("draftscope: there is no file nowhere.txt\n")


@pytest.mark.parametrize("method", ["treeflash", "dart"])
def test_a_run_is_logged_with_its_options_and_read_back(call, toy, tmp_path, method):
    path = tmp_path / "t.jsonl"
    words = ("--prompt", "hi", "--max-new-tokens", 12, "--budget", 9, "--trace", path)
    code, _, err = call("run", method, *words, *options_for(toy, method))
    assert code == 0, err
    trace = read_trace(path)
    assert trace.header.method == method and trace.header.drafter["kind"] == method
    assert trace.header.settings["options"].keys() == defaults(find_method(method)).keys()
    assert len(trace.header.drafter["sha256"]) == 16
    record = trace.rounds[0]
    assert isinstance(record.draft, Draft) and record.proposal is not None
    assert record.draft.notes and record.proposal.factorised_lists == (method == "dart")
    shown = record.proposal.lists.ids[:, :64].flatten().tolist()
    assert {*record.draft.tokens.tolist(), *shown} <= record.texts.keys(), "for a replay"
    assert call("trace", "check", path)[0] == call("trace", "show", path, "--round", 1)[0] == 0


# ── exporting ────────────────────────────────────────────────────────────────────────────────────


def same_weights(one: Path, two: Path) -> bool:
    a, b = (load_file(folder / "model.safetensors") for folder in (one, two))
    return a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)


def test_a_dflash_drafter_is_exported_as_it_is(call, folder, tmp_path):
    code, out, err = call(
        "model", "export", "--out", tmp_path / "x", "--drafter", folder / "drafter"
    )
    assert code == 0, err
    assert "official dflash format" in out and same_weights(folder / "drafter", tmp_path / "x")


def test_a_treeflash_drafter_is_exported_with_its_backbone(call, folder, tmp_path):
    model = toys.treeflash_model(2, dtype=torch.bfloat16)
    treeflash.save_model(model, tmp_path / "whole")
    dflash.FORM.save_model(model.model, tmp_path / "dflash")
    treeflash.save_model(model, tmp_path / "treeflash", backbone="dflash")
    words = ("--kind", "treeflash", "--drafter", tmp_path / "treeflash")
    code, _, err = call("model", "export", "--out", tmp_path / "out", *words)
    assert code == 0, err
    assert same_weights(tmp_path / "out", tmp_path / "whole")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert "backbone" not in config["treeflash_config"]


def test_a_dart_drafter_is_exported_with_the_targets_embedding_and_head(call, folder, tmp_path):
    model = toys.dart_model(dtype=torch.bfloat16, vocab_size=257, draft_vocab_size=257)
    dart.FORM.save_model(model, tmp_path / "dart", small=True)
    words = ("--kind", "dart", "--drafter", tmp_path / "dart", "--model", folder / "target")
    code, _, err = call("model", "export", "--out", tmp_path / "out", *words)
    assert code == 0, err
    target = load_file(folder / "target" / "model.safetensors")
    found = dart.FORM.load_checkpoint(tmp_path / "out", torch.bfloat16, "cpu")
    assert found.head is not None
    assert torch.equal(found.head, target["lm_head.weight"].bfloat16())
    state = load_file(tmp_path / "out" / "model.safetensors")
    expected = target["model.embed_tokens.weight"].bfloat16()
    assert torch.equal(state["embed_tokens.weight"], expected)
    words = (*words[:2], "--drafter", tmp_path / "out", *words[4:])
    code, _, err = call("model", "export", "--out", tmp_path / "again", *words)
    assert code == 2 and "official format already" in err
