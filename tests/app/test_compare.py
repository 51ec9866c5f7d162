"""Comparisons of runs as their headers allow them."""

from __future__ import annotations

from dataclasses import replace

from app.view.comparison import cautions, comparison_view, differences, same_tokens
from tests.helpers.fakes import make_header


def test_two_runs_of_one_request_have_no_cautions():
    one = make_header("why?", "ddtree", sampling={"temperature": 0.0, "seed": 1})
    other = replace(make_header("why?", "dart", budget=4, sampling={"temperature": 0}), seed=9)
    assert cautions(one, other) == []  # greedy: a seed means nothing


def test_prompt_tokenizer_target_and_sampling():
    one = replace(make_header("why?", sampling={"temperature": 0.7}), tokenizer_hash="a")
    other = replace(
        make_header("how?", sampling={"temperature": 0.9}),
        tokenizer_hash="b", model={"name": "another"}, seed=3,
    )  # fmt: skip
    found = cautions(one, other)
    words = ("tokenizers", "prompts", "targets", "temperatures", "seeds")
    assert [word in sentence for word, sentence in zip(words, found, strict=True)] == [True] * 5


def test_what_an_old_trace_does_not_say_is_no_difference():
    one = replace(make_header("why?"), tokenizer_hash="a")
    other = replace(make_header("why?"), tokenizer_hash="", model={}, prompt_ids=())
    assert cautions(one, other) == []
    assert cautions(make_header(sampling="hostile"), make_header()) == []


def test_precisions_and_limits_are_told_of():
    one = replace(make_header("why?"), dtype="float32")
    other = replace(one, dtype="bfloat16", settings=dict(one.settings) | {"max_new_tokens": 7})
    found = cautions(one, other)
    assert ["precisions" in found[0], "token limits" in found[1], len(found)] == [True, True, 2]


def test_two_denoising_runs_say_what_they_drew_with():
    one = replace(make_header("why?"), settings={"length": 64, "temperature": 0.7, "pace": "k1"})
    other = replace(one, settings=dict(one.settings) | {"temperature": 0.0})
    assert any("temperatures" in words for words in cautions(one, other))
    untold = replace(one, settings={"length": 64, "pace": "k1"})
    assert not cautions(one, untold) and not cautions(untold, other)


def test_of_more_than_two_it_is_said_which():
    one = make_header("a")
    other = make_header("b")
    assert differences([one]) == [] and differences([one, other]) == cautions(one, other)
    (told,) = differences([one, other, one, other])
    assert told.startswith("A against B and D: the prompts differ")
    assert same_tokens([one, other])
    assert not same_tokens([replace(one, tokenizer_hash="1"), replace(other, tokenizer_hash="2")])


def test_two_checkpoints_of_one_method_have_two_names():
    """By the user's own words; a checkpoint that nobody named is the default, never its hash."""
    header = make_header("why?")
    mine = replace(header, drafter={"kind": "dflash", "checkpoint": "mine", "sha256": "aa"})
    ours = replace(header, drafter={"kind": "dflash", "sha256": "bb"})
    other = replace(make_header("why?", "dart"), drafter={"kind": "dart", "sha256": "cc"})
    found = comparison_view([mine, ours, other])
    assert found["apart"] == ["drafter=mine", "drafter=default", ""]
    assert comparison_view([mine, mine])["apart"] == ["", ""]
    same_name = replace(mine, drafter=dict(mine.drafter) | {"sha256": "bb"})
    assert comparison_view([mine, same_name])["apart"] == ["weights=aa", "weights=bb"]
