"""A text that was served, drafted here: collect, what-if and calibrate along given tokens."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from msgspec import structs
from transformers import AutoTokenizer

from analysis.collected.calibrate import CalibrationPlan, calibrate, given_texts
from analysis.collected.collect import CollectionPlan, collect
from analysis.collected.collection import Collection
from analysis.collected.given import Answer, Follows, told
from analysis.collected.whatif import Simulation
from analysis.numbers import NEAR
from app import cli
from app.command_line import parse
from app.commands import collect as collect_command
from app.commands.options import drafting
from app.studio.examples import Examples
from app.studio.tabs.whatif import Simulations
from core.decoding.along import Reading
from core.decoding.engine import Engine
from core.errors import UserError
from core.journal import FILE, Journal
from core.methods.method import BY_PATH, BY_RUN
from core.traces.reader import read_trace
from core.traces.writer import write_trace
from tests.helpers import toys
from tests.helpers.collected_toys import corrupt, simulate, source
from tests.helpers.sentences import is_one_sentence

PROMPT, COUNT = list(toys.PROMPT), 30
OWN = tuple(toys.plain(COUNT))
METHODS = {
    "ddtree": {},
    "treeflash": {"candidates": 12, "siblings": 14},
    "dart+best-first": {},
}
MISSES = (0, 4, 5, 20)  # tokens of SERVED that are another one than the target's


def _served() -> tuple[int, ...]:
    """A text that leaves the target's choice at MISSES and is its own elsewhere."""
    text: list[int] = []
    for number in range(COUNT):
        best = toys.full_forward([*PROMPT, *text]).logits[-1]
        text.append(int(best.argsort(descending=True)[1 if number in MISSES else 0]))
    return tuple(text)


SERVED = _served()


def answer(tokens=SERVED, words=False) -> Answer:
    return Answer(tuple(tokens), "served.json", words, "d1")


def collected(path, tokens=SERVED, count=COUNT, **more):
    plan = CollectionPlan(count, 48, given=answer(tokens, **more))
    return collect(source(), PROMPT, path, plan, "hello")


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    return collected(tmp_path_factory.mktemp("given") / "toy.safetensors")


def test_the_targets_own_text_given_is_the_text_it_writes(tmp_path):
    """All but the tail, where the target goes on by itself either way."""
    own = collect(source(), PROMPT, tmp_path / "a.safetensors", CollectionPlan(COUNT, 48), "hello")
    same = collected(tmp_path / "b.safetensors", OWN)
    assert own.header.given is None and same.header.given.off == ()
    assert own.arrays.keys() == same.arrays.keys()
    for name, values in own.arrays.items():
        np.testing.assert_array_equal(values, same.arrays[name], err_msg=name)
    for method, options in METHODS.items():
        one, other = (simulate(made, method, 8, options) for made in (own, same))
        assert one.lengths == other.lengths and one.exact and other.exact
        assert "real greedy run" in other.note


def test_what_the_target_says_of_it_is_a_plain_forwards(given):
    tokens = given.tokens.tolist()
    assert tuple(tokens[given.answer : given.end]) == SERVED
    log_p = toys.full_forward(tokens).logits.log_softmax(-1).numpy()
    after = log_p[given.answer - 1 : given.end - 1]
    own = after[np.arange(COUNT), list(SERVED)]
    about = given.header.given
    assert about.off == MISSES == tuple(np.flatnonzero(own < after.max(1)).tolist())
    assert about.log_p == pytest.approx(own.mean(), rel=1e-5)
    assert about.near == sum(after[n].max() - own[n] < NEAR for n in MISSES)
    rows = log_p[given.answer : len(tokens) - 1]
    best = np.sort(rows, 1)[:, ::-1][:, :10]
    np.testing.assert_allclose(given.arrays["target.log_p"][: len(rows)], best, atol=1e-4)
    tail = tokens[given.end :]  # it goes on as the target would
    wanted = log_p[given.end - 1 : given.end - 1 + len(tail)].argmax(1)
    assert tail and tail == wanted.tolist()


@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 0), (torch.bfloat16, 2)])
def test_in_bfloat16_tokens_tie_within_half_a_nat(dtype, near):
    """As ``trace compare`` holds them: written along the text, or read elsewhere."""
    logits = torch.tensor([[0.0, 0.25, -9.0], [0.25, 0.0, -9.0], [0.5, 0.0, -9.0]], dtype=dtype)
    served = answer((0, 1, 0))
    follows = Follows(served, 4)
    follows.choose(logits, [4, 5, 6])
    tokens = torch.tensor([7, 7, 7, 7, *served.tokens])
    rows = torch.cat([logits, logits[:1]])  # after the last token, too
    reading = Reading(tokens, 4, {}, rows, lambda rows: rows)
    for found in (follows.found(3), told(reading, served, 3)):
        assert (found.off, found.near) == ((0, 1), near)


def test_drafters_run_at_each_of_its_tokens(given):
    """As a decoder that stands there: its features, and its lists."""
    drafter = toys.dflash_drafter()
    tokens = given.tokens.tolist()
    for place in (given.answer, given.answer + 5, given.end - 2):
        features = toys.full_forward(tokens[:place], layers=drafter.layers).features
        drafter.reset(len(tokens))
        drafter.extend(tokens[:place], features)
        lists = drafter.begin(tokens[place], 48).by_depth
        found = given.lists("dflash", place)
        np.testing.assert_allclose(found.log_q[:, :9], lists.log_q[:, :9], atol=1e-4)
        np.testing.assert_array_equal(found.ids[:, :3], lists.ids[:, :3])


@pytest.mark.parametrize("method", METHODS)
def test_simulated_rounds_follow_the_text(method, given):
    simulation = Simulation(given, method, METHODS[method])
    run, text = simulation.run(16), given.tokens.tolist()
    for start, length in zip(run.starts, run.lengths, strict=True):
        draft, row, taken = simulation.draft(start, 16), 0, 0
        assert draft.tokens[0] == text[start]
        while (step := draft.child(row, text[start + taken + 1])) is not None:
            row, taken = step, taken + 1
        assert length == taken + 1
    assert not run.exact and "4 tokens of it are not the target's choice" in run.note
    assert "1 token of it is not" in simulation.run(16, 2).note


def test_a_beginning_without_a_foreign_token_is_exact(tmp_path):
    tokens = (*OWN[:9], *((t + 1) % toys.VOCABULARY for t in OWN[9:12]))
    made = collected(tmp_path / "x.safetensors", tokens)
    assert made.header.given.off[0] == 9
    assert simulate(made, "ddtree", 8, new_tokens=9).exact
    assert not simulate(made, "ddtree", 8, new_tokens=10).exact


def test_the_sentence_tells_what_is_held(tmp_path, given):
    assert given.given == (
        f"the text is given, not written here: served.json, 30 tokens, mean p {_percent(given)}; "
        "4 tokens (13%) are not the target's greedy choice, the first is token 1"
        + (f", and {near} nearly tied with it" if (near := given.header.given.near) else "")
    )
    longer = structs.replace(given.header.given, length=60)
    assert "30 of its 60 tokens" in longer.sentence(COUNT)
    assert "4 tokens (13%) are not" in longer.sentence(COUNT)  # of those that are held
    cut = collected(tmp_path / "x.safetensors", OWN, 12, words=True)
    assert "12 of its 30 tokens (cut anew from its words)" in cut.given
    assert cut.given.endswith("every token is the target's greedy choice")
    tail = cut.tokens.tolist()[cut.end :]
    assert tail == list(OWN[12 : 12 + len(tail)])  # the given text itself goes on


def test_the_page_tells_it_too(given):
    simulations = Simulations(Examples())
    name = simulations.add(given.path)
    assert simulations.routes()["about"]({"file": name})["given"] == given.given


def _percent(collection) -> str:
    from analysis.numbers import percent

    return percent(float(np.exp(collection.header.given.log_p)))


def test_a_plain_collection_is_written_as_ever(tmp_path):
    made = collect(source(), PROMPT, tmp_path / "a.safetensors", CollectionPlan(9, 9))
    assert "given" not in json.loads(made.header.to_json()) and made.given == ""


@pytest.mark.parametrize(
    ("tokens", "plan", "says"),
    [
        ((1, 2, toys.VOCABULARY), {}, "token 48, and the target has tokens below 48"),
        ((1, -1, 3), {}, "holds the token -1"),
        ((1,), {}, "fewer than 2 tokens"),
        ((), {}, "fewer than 2 tokens"),
        ((1, 2, 3), {"sampling": toys.HOT}, "leave the temperature at 0"),
    ],
)
def test_what_cannot_be_drafted_is_one_sentence(tokens, plan, says, tmp_path):
    with pytest.raises(UserError, match=says):
        collect(
            source(), PROMPT, tmp_path / "x", replace(CollectionPlan(given=answer(tokens)), **plan)
        )
    if not plan:
        with pytest.raises(UserError, match=says):
            calibrate(source(), [PROMPT], tmp_path / "c", CALIBRATE, given=[answer(tokens)])


@pytest.mark.parametrize(
    "change",
    [
        {"off": [30]}, {"off": [3, 3]}, {"off": [-1]}, {"off": ["x"]}, {"off": 3}, {"near": 9},
        {"name": 3}, {"log_p": "x"}, {"length": -1}, {"words": 1}, {"surplus": 1},
    ],
)  # fmt: skip
def test_a_damaged_account_of_it_is_one_sentence(change, tmp_path, given):
    path = tmp_path / "x.safetensors"
    path.write_bytes(given.path.read_bytes())
    corrupt(path, lambda a, h, m: h["given"].update(change))
    with pytest.raises(UserError, match="header cannot be read"):
        Collection.load(path)


CALIBRATE = CalibrationPlan(anchors=6, continuations=3, seeds=1, new_tokens=12)


def test_anchors_of_calibrate_lie_in_a_given_text(tmp_path):
    """The numbers are those of anchors in it; the target's own text given is the text it writes."""
    plain = calibrate(source(), [PROMPT], tmp_path / "a", CALIBRATE)
    same = calibrate(source(), [PROMPT], tmp_path / "b", CALIBRATE, given=[answer(OWN)])
    assert plain.equals(same)
    other = calibrate(source(), [PROMPT], tmp_path / "c", CALIBRATE, given=[answer()])
    assert not other.equals(plain)
    text = Journal(tmp_path / "c" / FILE).get("texts")["texts"][0]
    assert text == [*PROMPT, *SERVED[:12]]
    assert given_texts(tmp_path / "a") == []
    assert "12 of its 30 tokens" in given_texts(tmp_path / "c")[0]
    again = calibrate(source(), [PROMPT], tmp_path / "c", CALIBRATE, given=[answer()])
    assert again.equals(other)
    with pytest.raises(UserError, match="another measurement"):
        calibrate(source(), [PROMPT], tmp_path / "c", CALIBRATE)


# ── the commands ─────────────────────────────────────────────────────────────────────────────────


def collecting(toy, file, *words) -> int:
    asked = ["collect", "--out", str(file), "--methods", "ddtree", "--max-new-tokens", "12"]
    return cli.main([*asked, *map(str, words), *toy])


def response(path, value):
    path.write_text(json.dumps(value), "utf-8")
    return path


VLLM = {"choices": [{"token_ids": list(b"the cat"), "text": "the cat"}]}


def test_a_response_becomes_a_collected_text(toy, tmp_path, capsys):
    file = response(tmp_path / "r.json", VLLM | {"prompt_token_ids": list(b"say")})
    out = tmp_path / "x.safetensors"
    assert collecting(toy, out, "--answer", file) == 0
    assert "the text is given, not written here: r.json, 7 tokens" in capsys.readouterr().err
    made = Collection.load(out)
    assert made.tokens.tolist()[: made.end] == list(b"saythe cat")
    assert made.header.prompt_text and not made.header.given.words
    assert collecting(toy, out, "--answer", file) == 0  # the same again
    capsys.readouterr()
    assert cli.main(["whatif", str(out), "--methods", "ddtree", "--budget", "4"]) == 0
    shown = capsys.readouterr()
    assert "the text is given" in shown.out and "not exact: the rounds follow" in shown.err
    other = tmp_path / "y.safetensors"
    other.write_bytes(out.read_bytes())
    assert cli.main(["whatif", str(out), str(other), "--methods", "ddtree"]) == 0
    assert capsys.readouterr().out.count("the text is given") == 2
    assert cli.main(["cost", str(out), "--methods", "ddtree", "--check", *toy]) == 2
    assert is_one_sentence(capsys.readouterr().err)
    for words in (("--prompt", "say"), ("--answer", response(tmp_path / "o.json", VLLM))):
        prompt = ("--prompt", "say") if words[0] == "--answer" else ()
        assert collecting(toy, out, *words, *prompt) == 2
        assert "collection of another text" in capsys.readouterr().err


def test_without_methods_whatever_can_run_on_the_model_drafts(toy, tmp_path, capsys):
    """The documented first lines name no method, and many drafters have no weights."""
    words = ["--prompt", "say", "--max-new-tokens", "9"]
    assert cli.main(["collect", "--out", str(tmp_path / "x"), *words, *toy]) == 0
    assert set(Collection.load(tmp_path / "x").drafters) == {"dflash", "pld"}
    few = ["--anchors", "1", "--continuations", "2", "--repeats", "1", *toy]
    assert cli.main(["calibrate", "--out", str(tmp_path / "c"), *words, *few]) == 0
    assert {"dflash", "pld", "suffix"} <= set(capsys.readouterr().out.split())
    bare = ["--device", "cpu", "--model", toy[1]]
    assert cli.main(["collect", "--out", str(tmp_path / "y"), *words, *bare]) == 2
    err = capsys.readouterr().err
    assert is_one_sentence(err) and "name a checkpoint with --drafter" in err


def test_what_drafts_for_the_embedded_target_by_default_has_weights():
    shipped = parse(collect_command.Options, ["--out", "x"], "collect")
    listed, every = drafting(shipped, BY_PATH, BY_RUN), drafting(shipped, BY_RUN)
    assert listed == ("dflash", "treeflash", "dart", "pld", "medusa", "uno")
    assert set(every) == {*listed, "suffix", "sps", "eagle3", "hydra", "mtp"}
    Engine(device="cpu").check(*every)


def test_words_and_a_trace_and_several_responses(toy, tmp_path, capsys):
    text = tmp_path / "t.txt"
    text.write_text("the cat sat\n", "utf-8")
    out = tmp_path / "x.safetensors"
    assert collecting(toy, out, "--answer", text, "--prompt", "say") == 0
    made = Collection.load(out)
    tokenizer = AutoTokenizer.from_pretrained(toy[1])
    assert tokenizer.decode(made.tokens[: made.end].tolist()) == "saythe cat sat\n"
    assert made.header.given.words and made.header.prompt_text == "say"
    trace = tmp_path / "t.jsonl.gz"
    run = ["run", "ddtree", "--prompt", "say", "--max-new-tokens", "9", "--trace", str(trace)]
    assert cli.main([*run, *toy]) == 0
    assert collecting(toy, tmp_path / "y.safetensors", "--answer", trace) == 0
    traced = Collection.load(tmp_path / "y.safetensors")
    assert traced.header.given.off == () and traced.end - traced.answer == 9
    assert "as its target" not in capsys.readouterr().err
    whole = read_trace(trace)
    header, theirs = replace(whole.header, model={"name": "toy"}), tmp_path / "theirs.jsonl"
    write_trace(theirs, replace(whole, header=header))
    assert collecting(toy, tmp_path / "theirs.safetensors", "--answer", theirs) == 0
    assert "theirs.jsonl names toy as its target" in capsys.readouterr().err
    many = tmp_path / "many.jsonl"
    many.write_text("".join(json.dumps(VLLM) + "\n" for _ in range(2)), "utf-8")
    prompts = tmp_path / "p.txt"
    prompts.write_text("one\ntwo\n", "utf-8")
    assert collecting(toy, tmp_path / "f", "--answer", many, "--prompts", prompts) == 0
    held = [Collection.load(f).header for f in sorted((tmp_path / "f").glob("*.safetensors"))]
    assert [h.prompt_text for h in held] == ["one", "two"]
    assert held[1].given.name == "many.jsonl, line 2"
    capsys.readouterr()
    one = ("--answer", many, "--response", 2, "--prompt", "two")
    assert collecting(toy, tmp_path / "z.safetensors", *one) == 0
    assert Collection.load(tmp_path / "z.safetensors").header.given.name == "many.jsonl, line 2"


def test_calibrate_tells_whose_text_it_is(toy, tmp_path, capsys):
    file = response(tmp_path / "r.json", VLLM | {"prompt_token_ids": list(b"say")})
    words = [
        "calibrate",
        "--out",
        str(tmp_path / "c"),
        "--answer",
        str(file),
        "--methods",
        "ddtree",
    ]
    words += ["--anchors", "2", "--continuations", "2", "--repeats", "1", *toy]
    assert cli.main(words) == 0
    assert "the text is given, not written here: r.json" in capsys.readouterr().out


IDS = {"prompt_token_ids": list(b"say")}


@pytest.mark.parametrize(
    ("value", "words", "says"),
    [
        (VLLM, (), "name 1 with --prompt or --prompts, not 0"),
        (VLLM | IDS, ("--prompt", "x"), "leave --prompt and --prompts out"),
        ([VLLM, VLLM], ("--prompt", "x"), "name 2 with --prompt"),
        (VLLM | IDS, ("--response", 2), "there is no response 2"),
        (VLLM | IDS, ("--response", 0), "there is no response 0"),
        (VLLM | IDS, ("--response", -1), "there is no response -1"),
        ([], (), "holds 0 responses"),
        ({"output_ids": [1, 999], "prompt_token_ids": [1]}, (), "another target"),
        ({"output_ids": [1, 2], "prompt_token_ids": [999]}, (), "outside the model's vocabulary"),
        ({"output_ids": [1, 2], "prompt_token_ids": []}, (), "no tokens"),
        ({"output_ids": [], "prompt_token_ids": [1]}, (), "fewer than 2 tokens"),
        ({"text": "", "prompt_token_ids": [1]}, (), "fewer than 2 tokens"),
        ({"output_ids": [1, 2], "prompt_token_ids": [1] * 200_000}, (), "context"),
        ({"output_ids": ["x"]}, (), "output_ids"),
        (3, (), "must be an object"),
        ({}, (), "holds no text"),
        (VLLM | IDS, ("--temperature", 1), "leave the temperature at 0"),
    ],
)  # fmt: skip
def test_a_bad_answer_on_the_command_line_is_one_sentence(
    value, words, says, toy, tmp_path, capsys
):
    file = response(tmp_path / "r.json", value)
    assert collecting(toy, tmp_path / "x.safetensors", "--answer", file, *words) == 2
    err = capsys.readouterr().err
    assert is_one_sentence(err) and says in err


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"{", b" \n"])
@pytest.mark.parametrize("name", ["a.txt", "a.json", "a.jsonl", "a.jsonl.gz"])
def test_files_that_hold_no_text(content, name, toy, tmp_path, capsys):
    (tmp_path / name).write_bytes(content)
    code = collecting(toy, tmp_path / "x", "--answer", tmp_path / name, "--prompt", "x")
    err = capsys.readouterr().err
    if (content, name) == (b"{", "a.txt"):
        assert code == 2 and "fewer than 2 tokens" in err
    assert code == 2 and is_one_sentence(err)


@pytest.mark.parametrize(
    ("words", "says"),
    [((), "name a prompt"), (("--response", "1"), "--response"), (("--answer", "no"), "no")],
)
def test_a_command_without_a_text_is_one_sentence(words, says, tmp_path, capsys):
    assert cli.main(["collect", "--out", str(tmp_path / "x"), *words]) == 2
    err = capsys.readouterr().err
    assert is_one_sentence(err) and says in err
