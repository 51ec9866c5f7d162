"""Suffix decoding: its counts, drafts and q are those of a search over all substrings."""

import heapq
import json
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.collected.collection import check_asked_anywhere, check_listable
from analysis.measures.probe import observe
from core.decoding.decode import Decoder
from core.drafting.builders import Chain, SampledChain, best_first
from core.errors import UserError
from core.methods import lookahead, ngram_mod
from core.methods.earlier import read_earlier
from core.methods.suffix import EARLIER, ESTIMATE, MATCHED, SEEN, SuffixOptions
from core.methods.suffix.automaton import SuffixAutomaton
from core.methods.suffix.drafter import load
from core.rounds.causes import Cause
from core.traces.schema import Trace
from core.traces.writer import round_to_json, write_trace
from core.verification.rules import SpeculativeSampling
from tests.helpers import toys
from tests.helpers.fakes import make_header, round_from_json
from tests.helpers.toys import GREEDY, HOT, PROMPT, plain, run

TOKENS = st.integers(0, 3)  # few: most substrings repeat
TEXT = st.lists(TOKENS, min_size=1, max_size=24)
TEXTS = st.lists(st.lists(TOKENS, max_size=16), max_size=3)


# ── the slow way: every substring is counted anew ────────────────────────────────────────────────


def occurrences(texts, string):
    """Where a string occurs: (text, the place after it), in the order of the texts."""
    size = len(string)
    return [
        (number, at + size)
        for number, text in enumerate(texts)
        for at in range(len(text) - size + 1)
        if tuple(text[at : at + size]) == tuple(string)
    ]


def followers(texts, string):
    """Token → how often it followed, in the order of first occurrence."""
    found = {}
    for number, after in occurrences(texts, string):
        if after < len(texts[number]):
            token = texts[number][after]
            found[token] = found.get(token, 0) + 1
    return found


def slow_draft(texts, pattern, limit, least, tree, own):
    """Greedy expansion: (path, estimate) in the order of drafting."""
    queue, pushed, drafted = [], 0, []
    path, estimate = (), Fraction(1)
    count = len(occurrences(texts, pattern)) + (not own)
    while len(drafted) < limit:
        seen = followers(texts, (*pattern, *path))
        ordered = sorted(seen.items(), key=lambda each: -each[1])
        enough = [(t, n) for t, n in ordered if estimate * n / count >= least]
        for token, times in enough if tree else enough[:1]:
            heapq.heappush(queue, (-estimate * times / count, pushed, (*path, token), times))
            pushed += 1
        if not queue:
            break
        estimate, _, path, count = heapq.heappop(queue)
        estimate = -estimate
        drafted.append((path, estimate))
    return drafted


def slowly(text, earlier, depth, factor, least, tree):
    """The chosen pattern's length, whether it is of earlier texts, and its draft."""
    best = (0, False, [])
    for texts, own in (([text], True), (earlier, False)):
        for m in range(1, min(depth, len(text)) + 1):
            pattern = tuple(text[-m:])
            if len(occurrences(texts, pattern)) + (not own) < 2:
                continue
            limit = min(int(m * factor + 1e-6), depth - m)
            found = slow_draft(texts, pattern, limit, least, tree, own)
            score, sum_of_best = (sum(e for _, e in some) for some in (found, best[2]))
            again = best[0] > 0 and best[1] != own  # of the same texts: the longer one wins a tie
            if score > sum_of_best or (again and score == sum_of_best):
                best = (m, not own, found)
    return best


def drafted(text, earlier=(), **options):
    drafter = toys.suffix_drafter(earlier, **options)
    drafter.extend(text[:-1], None)
    session = drafter.begin(text[-1], 1)
    return session, best_first(session, text, 2000)


def paths_of(draft):
    return {tuple(draft.tokens[list(draft.path(r))[1:]].tolist()): r for r in range(1, len(draft))}


# ── counts ───────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.integers(1, 6))
def test_every_short_substring_is_counted(texts, depth):
    automaton, grown = SuffixAutomaton(depth), []
    for text in texts:
        automaton.begin()
        grown.append([])
        for token in text:
            automaton.append(token)
            grown[-1].append(token)
        strings = {
            tuple(t[at : at + n]) for t in grown for n in range(1, depth + 1)
            for at in range(len(t) - n + 1)
        }  # fmt: skip
        for string in strings:
            states = automaton.suffixes(string)
            assert len(states) == len(string)
            assert automaton.count(states[-1]) == len(occurrences(grown, string))
            if len(string) < depth:
                found = automaton.followers(states[-1])
                assert {f.token: f.count for f in found} == followers(grown, string)
                assert [f.token for f in found] == sorted(
                    followers(grown, string), key=lambda t: -followers(grown, string)[t]
                )
        assert automaton.suffixes([9]) == []


@given(TEXTS, st.lists(TOKENS, max_size=8))
def test_only_the_suffixes_that_occur_are_found(texts, end):
    automaton = SuffixAutomaton(8)
    for text in texts:
        automaton.begin()
        automaton.extend(text)
    longest = max((m for m in range(1, len(end) + 1) if occurrences(texts, end[-m:])), default=0)
    assert len(automaton.suffixes(end)) == longest


@pytest.mark.parametrize("text", [[5] * 2000, [1, 2, 3] * 700, [*range(2000)]])
def test_a_token_costs_the_same_in_any_text(text):
    """Two states a token at most, and as many steps of counting as the depth has tokens."""
    automaton = SuffixAutomaton(24)
    for token in text:
        automaton.append(token)
        steps, state = 0, automaton._ending
        while state > 0:
            steps, state = steps + 1, automaton._link[state]
        assert steps <= 24
    assert len(automaton._length) <= 2 * len(text)


# ── drafts and q ─────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=400, deadline=None)
@given(
    TEXT, TEXTS, st.integers(2, 9), st.sampled_from(["0.5", "1", "2"]),
    st.sampled_from(["0", "0.1", "0.4"]), st.booleans(),
)  # fmt: skip
def test_drafts_and_q_are_those_of_a_search_over_all_suffixes(
    text, earlier, depth, factor, least, tree
):
    options = {"max_tree_depth": depth, "max_spec_factor": float(factor), "tree": tree}
    session, draft = drafted(text, earlier, min_token_prob=float(least), **options)
    m, old, slow = slowly(text, earlier, depth, float(factor), Fraction(least), tree)
    found, texts = paths_of(draft), earlier if old else [text]
    assert found.keys() == {path for path, _ in slow}
    for path, estimate in slow:
        row, pattern = found[path], text[len(text) - m :]
        seen = followers(texts, (*pattern, *path[:-1]))
        q = seen[path[-1]] / sum(seen.values())
        assert np.exp(draft.log_q[row]) == pytest.approx(q)
        assert draft.notes[SEEN][row] == seen[path[-1]]
        assert np.exp(draft.notes[ESTIMATE][row]) == pytest.approx(float(estimate))
        assert (draft.notes[MATCHED][row], draft.notes[EARLIER][row]) == (m, old)
        for above in (path[:-1], path):  # also after the last node
            told = session.log_q([text[-1], *above])[-1].exp().numpy()
            after = followers(texts, (*pattern, *above)) if m + len(above) < depth else {}
            expected = np.zeros(toys.VOCABULARY)
            for token, times in after.items():
                expected[token] = times / sum(after.values())
            np.testing.assert_allclose(told, expected, atol=1e-6)
    if not slow:
        assert not session.log_q([text[-1]]).exp().any()
    if not tree:
        assert np.all(np.diff(draft.parents) == 1), "a path"


@settings(max_examples=300, deadline=None)
@given(TEXT, TEXTS, st.integers(2, 9), st.lists(TOKENS, max_size=9), TEXT, TOKENS, TEXT)
def test_q_is_that_of_the_text_before_the_tokens_that_were_accepted(
    text, earlier, depth, path, accepted, root, more
):
    """The probe asks when the accepted tokens are in the text already."""
    drafter = toys.suffix_drafter(earlier, max_tree_depth=depth, min_token_prob=0.0)
    drafter.extend(text[:-1], None)
    session = drafter.begin(text[-1], 1)
    before = session.log_q([text[-1], *path])
    drafter.extend([text[-1], *accepted], None)
    assert session.log_q([text[-1], *path]).tolist() == before.tolist()
    drafter.begin(root, 1)
    drafter.extend(more, None)
    assert session.log_q([text[-1], *path]).tolist() == before.tolist()


@pytest.mark.parametrize("method", ["pld", "ngram-mod", "lookahead"])
def test_q_of_other_lookups_does_not_follow_the_text_either(method):
    facts = SimpleNamespace(vocabulary=toys.VOCABULARY, stop_ids=frozenset())
    drafter = {
        "pld": lambda: toys.pld_drafter(copied=3),
        "ngram-mod": lambda: ngram_mod.NgramMod(
            toys.VOCABULARY, options := ngram_mod.NgramModOptions(n_match=2, n_min=0),
            ngram_mod.Table(options.n_match),
        ),
        "lookahead": lambda: lookahead.Lookahead(facts, None, lookahead.LookaheadOptions(gram=3)),
    }[method]()  # fmt: skip
    drafter.reset(99)
    drafter.extend([1, 5, 2, 9, 1, 6, 2, 9], None)
    if method == "lookahead":
        drafter.pool.add(1, (5, 2))
        drafter.pool.add(1, (6, 2))
    session = drafter.begin(1, 8)
    before = session.log_q([1, 5])
    assert before[0].exp().any()
    drafter.extend([1, 6, 2, 9, 1, 6], None)
    if method == "lookahead":
        drafter.pool.add(1, (6, 3))
    drafter.begin(2, 8)
    assert session.log_q([1, 5]).tolist() == before.tolist()


@settings(max_examples=100, deadline=None)
@given(TEXT, st.data())
def test_how_the_text_came_changes_nothing(text, data):
    """In one piece or in rounds, with roots that were tried and not taken."""
    options = {"max_tree_depth": 8, "min_token_prob": 0.0}
    drafter, known = toys.suffix_drafter(**options), 0
    while known < len(text) - 1:
        for root in data.draw(st.lists(TOKENS, max_size=2)):
            drafter.begin(root, 1)
        until = data.draw(st.integers(known + 1, len(text) - 1))
        drafter.extend(text[known:until], None)
        known = until
    for root in data.draw(st.lists(TOKENS, max_size=2)):
        drafter.begin(root, 1)
    found = best_first(drafter.begin(text[-1], 1), text, 100)
    again = best_first(drafter.begin(text[-1], 1), text, 100)
    _, expected = drafted(text, **options)
    for draft in (found, again):
        assert draft.tokens.tolist() == expected.tokens.tolist()
        assert draft.log_q.tolist() == expected.log_q.tolist()


def test_a_long_repetition_is_drafted_as_far_as_half_the_depth():
    """Pattern and path share the tree's depth, as published."""
    text = list(range(40)) * 2 + [0, 1, 2]
    _, draft = drafted([*text, *range(3, 30)])
    assert draft.tokens[1:].tolist() == [*range(30, 40), 0, 1]
    assert draft.notes[MATCHED][1] == 12 and draft.notes[SEEN][1] == 2
    _, short = drafted(text[:83])
    assert short.nodes == 12, "43 tokens were seen before"


def test_earlier_texts_are_looked_at_where_the_text_has_nothing():
    _, draft = drafted([7, 8, 9], [[1, 7, 8, 9, 10, 11, 12, 13, 9, 20]], min_token_prob=0.0)
    assert draft.tokens[1:].tolist() == [10, 11, 12], "three tokens were found"
    assert draft.notes[EARLIER][1] == 1 and draft.notes[MATCHED][1] == 3
    assert np.exp(draft.notes[ESTIMATE][1]) == pytest.approx(0.5), "the text's own end counts"
    assert draft.log_q[1] == 0
    _, own = drafted([7, 8, 9, 30, 31, 32, 7, 8, 9], [[7, 8, 9, 10, 11, 12]])
    assert own.tokens[1:].tolist() == [30, 31, 32] and own.notes[EARLIER][1] == 0


# ── rounds ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tree", [True, False])
@pytest.mark.parametrize("sampling", [GREEDY, HOT], ids=["greedy", "hot"])
def test_rounds_tell_q_and_why_a_token_was_not_drafted(sampling, tree):
    future = plain(120, sampling)
    drafter = toys.suffix_drafter([future[:70], future[20:50]], tree=tree)
    found = run(Decoder("suffix", drafter, best_first), 120, sampling, 24, observe=observe)
    assert found.tokens == future
    causes, accepted = set(), 0
    for record in found.rounds:
        draft, accepted = record.draft, accepted + record.accepted
        causes.add(record.stop_reason)
        assert (draft.nodes == 0) == (record.stop_reason == Cause.NO_DRAFT)
        if draft.nodes:
            assert record.probe is not None and 0 <= record.probe.tvd[0] <= 1
            first = draft.children[0][0]
            p = np.exp(record.target_probs.log_p[first])
            if draft.log_q[first] == 0:  # q is sure of it
                np.testing.assert_allclose(record.probe.tvd[0], 1 - p, atol=1e-5)
        again = round_from_json(round_to_json(record))
        assert again.stop_reason == record.stop_reason
    assert accepted > 30
    assert causes >= {Cause.NO_DRAFT, Cause.BEYOND} and causes <= {
        Cause.NO_DRAFT, Cause.BEYOND, Cause.OUTSIDE,
    }  # fmt: skip


def test_a_draft_can_be_verified_by_speculative_sampling():
    future = plain(80, HOT)
    drafter = toys.suffix_drafter([future[:40]])
    found = run(Decoder("m", drafter, SampledChain(), SpeculativeSampling), 80, HOT, 5)
    assert len(found.tokens) == 80 and max(r.draft.nodes for r in found.rounds) > 1


def test_of_one_text_a_run_is_the_same_every_time():
    drafter = toys.suffix_drafter([plain(40)])
    one, two = (run(Decoder("m", drafter, Chain()), 60) for _ in range(2))
    assert [r.draft.tokens.tolist() for r in one.rounds] == [
        r.draft.tokens.tolist() for r in two.rounds
    ]


def test_that_it_cannot_be_listed_is_one_sentence_and_it_can_be_calibrated():
    with pytest.raises(UserError, match="depends on the whole path"):
        check_listable("suffix")
    check_asked_anywhere("suffix")


# ── earlier texts ────────────────────────────────────────────────────────────────────────────────


LANGUAGE = SimpleNamespace(
    vocabulary=toys.VOCABULARY,
    tokenizer_hash="abc",
    encode=lambda text: [int(word) for word in text.split()],
)


def test_earlier_texts_are_read_from_texts_rows_and_traces(tmp_path):
    (tmp_path / "a.txt").write_text("1 2 3")
    (tmp_path / "b.jsonl").write_text('{"prompt": "4 5", "answer": "6 7"}\n{"tokens": [8, 9]}\n')
    found = sorted(read_earlier(str(tmp_path), LANGUAGE))
    assert found == [[1, 2, 3], [4, 5], [6, 7], [8, 9]]
    assert list(read_earlier("", LANGUAGE)) == []
    rounds = run(Decoder("m", toys.pld_drafter(), Chain()), 20).rounds
    path = tmp_path / "t.jsonl.gz"
    write_trace(path, Trace(replace(make_header(), tokenizer_hash="abc"), rounds))
    (text,) = read_earlier(str(path), LANGUAGE)
    assert tuple(text) == plain(20), "the new text, without its prompt"
    drafter = load(LANGUAGE, None, SuffixOptions(earlier=str(path)))
    drafter.extend(list(PROMPT), None)
    assert best_first(drafter.begin(text[0], 1), [*PROMPT, text[0]], 9).tokens[1] == text[1]


def test_earlier_texts_that_cannot_be_read_are_one_sentence(tmp_path):
    bad = tmp_path / "b.jsonl"
    bad.write_text(json.dumps({"tokens": [toys.VOCABULARY]}))
    other = tmp_path / "t.jsonl"
    write_trace(other, Trace(replace(make_header(), tokenizer_hash="def"), ()))
    for path, says in (
        (bad, "outside the model's vocabulary"),
        (other, "another tokenizer"),
        (tmp_path / "none", "there is no file"),
    ):
        with pytest.raises(UserError, match=says):
            load(LANGUAGE, None, SuffixOptions(earlier=str(path)))
