"""The same text by two engines: where it first differs."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis.engines.generation import recorded
from analysis.engines.partings import compared, count_partings, remarks
from analysis.engines.texts import Written, first_difference, read_texts, sentences
from app import cli
from core.errors import UserError
from core.rounds.round import new_tokens
from core.traces.schema import Trace
from tests.helpers import toys
from tests.helpers.fakes import make_header, make_round
from tests.helpers.sentences import is_one_sentence
from tests.helpers.small_traces import read_one, saved


def run(count=12) -> Trace:
    tokens = np.random.default_rng(1).integers(0, 32, 400).tolist()
    rounds, position = [], 10
    while len(rounds) < count:
        ahead = tokens[position + 1 : position + 14]
        rounds.append(
            make_round(position, 20, len(rounds), position, tokens[position], ahead=ahead)
        )
        position += rounds[-1].accepted + 1
    return Trace(replace(make_header("why?"), prompt_ids=tuple(range(10))), tuple(rounds), {})


def response(trace: Trace, change: int | None = None, **more) -> dict:
    """Return the response of an engine that wrote this trace's text, perhaps with another token."""
    tokens = new_tokens(trace.rounds)
    if change is not None:
        tokens[change] = (tokens[change] + 1) % 32
    return {"output_ids": tokens} | more


def written(path, value):
    path.write_text(json.dumps(value), "utf-8")
    return path


def test_the_first_difference_with_p_of_both_tokens(tmp_path):
    """At every token of the text: round, p and words by a slow search in the rounds."""
    trace = run()
    one = read_one(saved(tmp_path / "a.jsonl", trace))
    tokens = new_tokens(trace.rounds)
    known = 0
    for at in range(len(tokens)):
        other = read_one(written(tmp_path / "b.json", response(trace, at)))
        found = first_difference(one, other)
        assert (found.what, found.index) == ("token", at)
        mine, theirs = found.sides
        assert (mine.token, theirs.token) == (tokens[at], (tokens[at] + 1) % 32)
        assert theirs.p is None and theirs.round is None
        position = 10 + at
        deciding = [
            r for r in trace.rounds if r.position < position <= r.position + len(r.committed)
        ]
        if not deciding:
            assert at == 0 and mine.round is None
            continue
        (record,) = deciding
        row = record.verdict.path[position - record.position - 1]
        top = dict(
            zip(record.target_probs.top_ids[row], record.target_probs.top_log_p[row], strict=True)
        )
        assert mine.round == record.number and mine.text == record.text(tokens[at])
        for p, token in ((mine.p, mine.token), (mine.other, theirs.token)):
            assert p == (pytest.approx(np.exp(top[token]), rel=1e-5) if token in top else None)
        known += mine.other is not None
    assert known > 3
    assert first_difference(one, one) is None


def test_a_text_that_ends_earlier_differs_at_its_end(tmp_path):
    """Whether by a limit or a stop token is not told: it is neither a tie nor a bug."""
    trace = run()
    one = read_one(saved(tmp_path / "a.jsonl.gz", trace))
    short = replace(one, tokens=one.tokens[:7], rounds=())
    found = first_difference(one, short)
    assert found.index == 7 and found.sides[1].token is None
    said = " ".join(sentences(found, one, short, 0.1))
    assert said.startswith("the same before new token 8: there one has ended ")
    assert "the end" in said and "tie" not in said and "part at" not in said
    assert found.sides[0].p is not None and found.tied(0.1) is None


def test_an_interrupted_trace_does_not_part_at_its_end(tmp_path):
    trace = run()
    one = read_one(saved(tmp_path / "a.jsonl", trace))
    whole = read_one(path := saved(tmp_path / "b.jsonl", replace(trace, rounds=trace.rounds[:5])))
    assert first_difference(one, whole) is not None
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))  # its footer
    cut = read_one(path)
    assert len(cut.tokens) < len(one.tokens) and first_difference(one, cut) is None
    said = sentences(None, one, cut, 0.1)
    assert said[0] == f"the same text: {len(cut.tokens)} tokens" and "interrupted" in said[1]


def test_a_whole_trace_without_rounds_tells_no_text_that_could_end(tmp_path):
    trace = run()
    one = read_one(saved(tmp_path / "a.jsonl", trace))
    bare = read_one(saved(tmp_path / "b.jsonl", replace(trace, rounds=())))
    assert first_difference(one, bare) is None
    assert sentences(None, one, bare, 0.1) == ["nothing is compared: b.jsonl has no rounds"]


def test_a_drawn_bonus_token_makes_a_text_a_sampled_one(tmp_path):
    trace = run()
    drawn = trace.rounds[3].verdict
    rounds = list(trace.rounds)
    rounds[3] = replace(rounds[3], verdict=replace(drawn, bonus_token=drawn.bonus))
    one = read_one(saved(tmp_path / "a.jsonl", trace))
    other = read_one(saved(tmp_path / "b.jsonl", replace(trace, rounds=tuple(rounds))))
    assert other.sampled and not one.sampled
    short = replace(other, tokens=(*other.tokens[:4], -7))
    with pytest.raises(UserError, match="only greedy ones tell a tie from a bug"):
        compared([(one, short)])
    assert compared([(one, other)])[0].difference is None


def test_prompts_that_differ_are_told_before_all_else(tmp_path):
    trace = run()
    one = read_one(saved(tmp_path / "a.jsonl", trace))
    prompt = [*range(9), 17]
    other = read_one(written(tmp_path / "b.json", response(trace, 3, prompt_token_ids=prompt)))
    found = first_difference(one, other)
    assert (found.what, found.index) == ("prompt", 9)
    assert "chat template" in " ".join(sentences(found, one, other, 0.1))


def test_ties_and_others_are_told_apart():
    trace = run()
    record = next(r for r in trace.rounds if r.index)
    row = record.verdict.path[0]
    at, best = record.position + 1 - 10, record.target_probs.top_ids[row][:2]
    own = new_tokens(trace.rounds)[at]
    rival = int(next(t for t in best if t != own))
    one = Written("a", tuple(range(10)), tuple(new_tokens(trace.rounds)), None, trace.rounds, 10)
    tokens = (*one.tokens[:at], rival, *one.tokens[at + 1 :])
    other = Written("b", None, tokens, None)
    found = first_difference(one, other)
    gap = abs(np.log(found.sides[0].p) - np.log(found.sides[0].other))
    assert found.tied(0.1) == (gap < 0.1)
    close = replace(found.sides[0], p=0.4, other=0.39, best=0.4)
    assert replace(found, sides=(close, found.sides[1])).tied(0.1)
    assert replace(found, sides=(close, found.sides[1])).tied(0.01) is False

    def told(side, bound):
        return sentences(replace(found, sides=(side, found.sides[1])), one, other, bound)

    swap = " nats of the target's best: another order of rounding can swap them"
    assert f"both lie within 0.1{swap}" in told(close, 0.1)
    assert not any(swap in line for line in told(close, 0.01))
    far = replace(close, other=0.1)
    assert replace(found, sides=(far, found.sides[1])).tied(0.1) is False
    assert any("this is not a tie" in s for s in told(far, 0.1))
    unlisted = replace(close, other=None, least=None)
    assert replace(found, sides=(unlisted, found.sides[1])).tied(0.1) is None


ENGINES = [
    {"choices": [{"text": "a cat", "token_ids": [1, 2]}], "prompt_token_ids": [7]},
    {"choices": [{"message": {"content": "a cat"}, "token_ids": [1, 2]}]},
    {"text": "a cat", "output_ids": [1, 2], "meta_info": {}},
    {"content": "a cat", "tokens": [1, 2], "timings": {}},
    {"custom_id": "1", "response": {"body": {"text": "a cat", "output_ids": [1, 2]}}},
]


@pytest.mark.parametrize("value", ENGINES)
def test_responses_of_every_engine(value, tmp_path):
    (found,) = read_texts(written(tmp_path / "a.json", [{"text": "no"}, value]), 2)
    assert (found.tokens, found.text) == ((1, 2), "a cat")
    other = read_one(written(tmp_path / "b.json", {"text": "a dog"}))
    parted = first_difference(found, other)
    assert (parted.what, parted.index, parted.before) == ("character", 2, "a ")
    assert [side.text for side in parted.sides] == ["cat", "dog"]


@pytest.mark.parametrize(
    "value",
    [3, [], {}, {"choices": []}, {"choices": 3}, {"output_ids": [-1]}, {"output_ids": ["x"]},
     {"text": 3}, {"choices": [{"message": 3}]}, {"text": None}],
)  # fmt: skip
def test_hostile_files_are_one_sentence(value, tmp_path, capsys):
    path = written(tmp_path / "a.json", value)
    with pytest.raises(UserError) as error:
        read_texts(path, 1)
    assert "\n" not in str(error.value)
    assert cli.main(["trace", "compare", str(path), str(path)]) == 2
    assert is_one_sentence(capsys.readouterr().err)


def test_of_two_words_alone_the_shorter_has_ended():
    short, long = (Written(words, None, None, words) for words in ("a cat", "a cat sat"))
    for pair in ((short, long), (long, short)):
        found = first_difference(*pair)
        assert (found.what, found.index) == ("character", 5)
        assert [side.ended for side in found.sides] == [text is short for text in pair]


def test_words_and_tokens_cannot_be_compared():
    with pytest.raises(UserError, match="words alone"):
        first_difference(Written("a", None, (1,), None), Written("b", None, None, "x"))


def test_transformers_and_our_own_run_write_one_text(tmp_path):
    """A recording begins with the prompt's last token and is still aligned."""
    prompt = torch.tensor([list(toys.PROMPT)])
    with recorded(toys.reference("llama"), tmp_path / "theirs.jsonl"):
        toys.reference("llama").generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False,
            prompt_lookup_num_tokens=3,
        )  # fmt: skip
    theirs = read_one(tmp_path / "theirs.jsonl")
    ours = Written("ours", toys.PROMPT, toys.plain(20), None)
    assert first_difference(theirs, ours) is None


def test_the_command_shows_it_and_says_so(tmp_path, capsys):
    trace = run()
    one = str(saved(tmp_path / "a.jsonl", trace))
    other = str(written(tmp_path / "b.json", response(trace, 5)))
    assert cli.main(["trace", "compare", one, one]) == 0
    assert "the same text" in capsys.readouterr().out
    assert cli.main(["trace", "compare", one, other]) == 1
    assert "they part at new token 6" in capsys.readouterr().out
    assert cli.main(["trace", "compare", one, other, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["same"] and found["difference"]["index"] == 5
    cut = tmp_path / "c.jsonl"
    cut.write_text(json.dumps(response(trace, 5)) + '\n{"text": "a c')
    assert cli.main(["trace", "compare", one, str(cut)]) == 1
    assert capsys.readouterr().err == "c.jsonl: Line 2, the last, is cut off: it is left out.\n"


def test_equal_ids_of_two_tokenizers_are_no_equal_text(tmp_path, capsys):
    one, other = (tmp_path / f"{name}.jsonl" for name in "ab")
    for path in (one, other):
        saved(path, replace(run(), header=replace(run().header, tokenizer_hash=path.stem)))
    assert cli.main(["trace", "compare", str(one), str(other)]) == 0
    assert "the same token ids, of two tokenizers" in capsys.readouterr().out
    assert cli.main(["trace", "compare", str(one), str(other), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"same": None, "difference": None}
    changed = replace(read_one(other), tokens=(*read_one(other).tokens[:3], 30))
    parted = first_difference(read_one(one), changed)
    said = sentences(parted, read_one(one), changed, 0.1)
    assert said[1] == "the tokenizers differ: an id of one may be another token of the other"
    remark, *_ = remarks(count_partings(compared([(read_one(one), changed)]), 0.1), ("a", "b"))
    assert remark.startswith("The tokenizers of 1 pair differ")


def test_what_was_not_compared_is_not_called_the_same(tmp_path, capsys):
    one = saved(tmp_path / "a.jsonl", run())
    bare = saved(tmp_path / "b.jsonl", replace(run(), rounds=()))
    cli.main(["trace", "compare", str(one), str(bare), "--json"])
    assert json.loads(capsys.readouterr().out) == {"same": None, "difference": None}
