"""The loop: whatever is drafted, the text is plain decoding's, to the token and to the length."""

import copy
import weakref
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from analysis.measures.probe import observe
from core.decoding.decode import Decoder, Stopwatch, decode
from core.decoding.request import Settings
from core.drafting.builders import (
    AsFarAsItPays,
    Chain,
    DynamicTree,
    OptTree,
    SampledChain,
    best_first,
)
from core.errors import UserError
from core.methods.medusa.tree import published
from core.methods.names import DRAFTERS
from core.models.target import Target
from core.rounds.causes import Cause
from core.rounds.draft import MAX_BUDGET
from core.rounds.round import Sampling, new_tokens
from core.traces.reader import read_trace
from core.traces.schema import Header, Trace
from core.traces.writer import write_trace
from tests.helpers import toys
from tests.helpers.timing import amount, usually
from tests.helpers.toys import AR, GREEDY, HOT, PROMPT, RULES, SAMPLED, line, plain, run, tree

STEPS = 200
TEXT = amount(24, STEPS)  # tokens of a run, where there is one for each of many methods


def known_text(sampling, family="llama", more=24):
    """Prompt and plain continuation, long enough that an oracle sees past the end of a run."""
    return PROMPT + plain(STEPS + more, sampling, family=family)


def drafter_named(name, sampling, family="llama"):
    text = known_text(sampling, family)
    made = toys.DRAFTERS | {
        "random": toys.RandomDrafter,
        "oracle": lambda: toys.OracleDrafter(text),
        "noisy": lambda: toys.NoisyOracle(text),
        "adversarial": lambda: toys.AdversarialDrafter(text),
        "right until 3": lambda: toys.RightUntil(text, 3),
        "same": lambda: toys.SameForever(11),
        "dflash": lambda: toys.dflash_drafter(family),
        "sliding": lambda: toys.dflash_drafter(sliding=(True, False), window=6),
        "treeflash": lambda: toys.treeflash_drafter(family),
        "dart": lambda: toys.dart_drafter(family),
        "dart reduced": lambda: toys.dart_drafter(ids=range(0, 48, 2)),
        "hydra plus": toys.hydra_plus_drafter,
        "mtp by depth": lambda: toys.mtp_drafter(depths=3),
        "mtp of the target's state": lambda: toys.mtp_drafter(depths=3, chained=False),
        "uno with masks": lambda: toys.uno_drafter(causal=False, masks=7),
        "conditional": lambda: toys.ConditionalDrafter(text),
        "adversarial conditional": lambda: toys.ConditionalDrafter(text, adversarial=True),
        "path": lambda: toys.PathDrafter(text),
        "suffix path": lambda: toys.suffix_drafter([text[5:60]], tree=False),
        "ngram-mod": lambda: toys.ngram_mod_drafter([text[:60]], n_match=2, n_min=1),
    }
    return made[name]()


# ── the same text as plain decoding ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("family", toys.FAMILIES)
@pytest.mark.parametrize("rule", RULES)
def test_plain_decoding_equals_the_reference_loop(rule, family):
    sampling, steps = RULES[rule], amount(80, STEPS)
    found = run(AR, steps, sampling, family=family)
    assert found.tokens == plain(steps, sampling, family=family)
    assert len(set(found.tokens)) > 10, "a text without variety proves little"


CASES = [(tree, name, n) for name in ("oracle", "noisy", "dflash") for n in (1, 2, 7, 64)]
CASES += [
    (tree, "random", 24),
    (tree, "adversarial", 7),
    (tree, "adversarial", 64),
    (tree, "right until 3", 7),
    (tree, "same", 2),
    *((line, name, 64) for name in ("oracle", "noisy", "adversarial", "right until 3", "dflash")),
]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("make", "name", "budget"), CASES)
def test_a_tree_writes_plain_decodings_text(make, name, budget, rule):
    sampling = RULES[rule]
    found = run(make(drafter_named(name, sampling)), TEXT, sampling, budget)
    assert found.tokens == plain(STEPS, sampling)[:TEXT]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["noisy", "dflash"])
def test_a_tree_of_1024_nodes_writes_plain_decodings_text(name, rule):
    """Fifteen depths and half-right guesses, so that a text takes few of these large rounds."""
    sampling, steps = RULES[rule], amount(40, STEPS)
    if name == "noisy":
        drafter = toys.NoisyOracle(known_text(sampling), max_depth=15, boost=5.0)
    else:
        drafter, steps = drafter_named(name, sampling), 12
    found = run(tree(drafter), steps, sampling, 1024)
    assert found.tokens == plain(STEPS, sampling)[:steps]
    assert all(r.draft.nodes == 1024 for r in found.rounds)


def test_other_seeds_write_other_texts():
    texts = {run(AR, 30, replace(HOT, seed=seed)).tokens for seed in range(5)}
    assert len(texts) == 5


def test_the_same_seed_writes_the_same_text_in_float32_too():
    """Across methods, in the precision that is used in earnest."""
    single = toys.model(dtype=torch.float32)
    texts = set()
    for method in (AR, tree(toys.RandomDrafter()), line(toys.RandomDrafter())):
        texts.add(run(method, 120, SAMPLED, 32, target=Target(single, toys.LAYERS)).tokens)
    assert len(texts) == 1


# ── the same for drafters that see the token before, and searches that see n-grams ───────────────


def method_named(name, sampling, family="llama"):
    """A drafter with random weights or an informed one, and a builder, by their names."""
    text = known_text(sampling, family)
    part, _, builder = name.partition("+")
    builders = {
        "best-first": best_first,
        "chain": Chain(),
        "cost-aware": AsFarAsItPays(20.0, 0.1, "worth"),
        "sampled-chain": SampledChain(coupled=True),
        "eagle2": DynamicTree(),
        "static": published(),
        "opt-tree": OptTree(),
        "opt-tree 0.3": OptTree(0.3),
        "continuity": toys.continuity(text[:150]),
        "continuity without grams": toys.continuity(ngram_weight=0.0, width=5, beam=3),
    }
    return Decoder(name, drafter_named(part, sampling, family), builders[builder])


METHODS = (
    "treeflash+best-first", "dart+continuity", "dflash+continuity", "dart+best-first",
    "treeflash+chain", "treeflash+opt-tree", "dart+opt-tree", "conditional+best-first",
    "path+best-first", "path+opt-tree", "path+chain", "pld+chain",
    "suffix+best-first", "suffix path+chain", "ngram-mod+chain", "suffix+sampled-chain",
    "sps+sampled-chain", "sps+best-first", "lookahead+best-first",
    "dflash+cost-aware", "path+cost-aware", "path+eagle2", "eagle3+eagle2",
    "eagle2+eagle2", "eagle3+best-first", "medusa+static", "medusa+best-first",
    "hydra+best-first", "hydra+static",
    "hydra plus+best-first", "hydra plus+static",
    "mtp+chain", "mtp+best-first", "mtp+eagle2", "mtp by depth+best-first", "mtp by depth+eagle2",
    "mtp by depth+sampled-chain", "mtp of the target's state+best-first",
    "gemma4-assistant+best-first",
    "dspark+chain", "dspark+best-first", "dflash2+chain", "dflash2+best-first",
    "xpress+best-first", "domino+best-first", "peagle+chain", "peagle+best-first",
    "uno+best-first", "uno+chain", "uno with masks+best-first",
)  # fmt: skip
OTHERS = (
    "noisy+continuity", "noisy+continuity without grams", "conditional+chain",
    "conditional+opt-tree 0.3", "adversarial conditional+best-first", "dart reduced+best-first",
    "treeflash+continuity", "sliding+best-first",
)  # fmt: skip
LARGE = (  # every builder, and q of every kind
    "treeflash+best-first", "dart+continuity", "dart+opt-tree", "path+cost-aware", "pld+chain",
    "suffix+best-first", "sps+sampled-chain", "eagle3+eagle2", "eagle3+best-first",
    "medusa+static", "hydra plus+best-first", "mtp by depth+best-first", "uno+best-first",
)  # fmt: skip
SILENT = ("pld", "lookahead", "suffix", "ngram-mod")  # these draft nothing in some rounds
SHORT_RULES = {"greedy": GREEDY, "hot": HOT}


def test_every_listed_drafter_is_compared_with_plain_decoding():
    assert {name.partition("+")[0] for name in METHODS} >= DRAFTERS.keys()


@pytest.mark.parametrize(
    ("budget", "rule"),
    usually(((7, "hot"), (64, "greedy")), product((1, 2, 7, 64), SHORT_RULES)),
)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_writes_plain_decodings_text(name, budget, rule):
    sampling, steps = SHORT_RULES[rule], amount(16, 60)
    found = run(method_named(name, sampling), steps, sampling, budget)
    assert found.tokens == plain(STEPS, sampling)[:steps]
    assert found.target.forwards == 1 + len(found.rounds)
    least = 0 if name.startswith(SILENT) else 1
    assert all(least <= r.draft.nodes <= budget for r in found.rounds)


@pytest.mark.parametrize("rule", SHORT_RULES)
@pytest.mark.parametrize("name", OTHERS)
def test_odd_pairs_write_plain_decodings_text(name, rule):
    sampling = SHORT_RULES[rule]
    steps = amount(40, STEPS)
    found = run(method_named(name, sampling), steps, sampling, 24, observe=observe)
    assert found.tokens == plain(STEPS, sampling)[:steps]
    assert all(np.isfinite(record.probe.tvd).all() for record in found.rounds)


@pytest.mark.parametrize("rule", usually(("hot",), SHORT_RULES))
@pytest.mark.parametrize("name", usually(LARGE, METHODS))
def test_every_method_with_1024_nodes_writes_plain_decodings_text(name, rule):
    sampling = SHORT_RULES[rule]
    steps = amount(6, 12)
    found = run(method_named(name, sampling), steps, sampling, 1024)
    assert found.tokens == plain(STEPS, sampling)[:steps]
    # These have fewer prefixes.
    few = ("chain", "conditional", "lookahead", "suffix", "cost", "eagle2", "static")
    if not any(word in name for word in few):
        assert all(r.draft.nodes == 1024 for r in found.rounds)


@pytest.mark.parametrize(
    ("budget", "rule"),
    usually(((2, "top-k top-p"), (64, "greedy"), (64, "hot")), product((2, 64), RULES)),
)
@pytest.mark.parametrize(
    "name", ["noisy+best-first", "dflash+best-first", "treeflash+best-first", "dart+continuity"]
)
def test_qwen3_writes_plain_decodings_text(name, rule, budget):
    sampling = RULES[rule]
    found = run(method_named(name, sampling, "qwen3"), TEXT, sampling, budget, family="qwen3")
    assert found.tokens == plain(STEPS, sampling, family="qwen3")[:TEXT]


def test_a_drafter_that_sees_the_token_before_is_accepted_in_depth():
    found = run(method_named("conditional+best-first", HOT), 100, HOT, 64)
    assert {r.accepted for r in found.rounds} >= {0, 1, 2, 3}
    paths = [r.verdict.path for r in found.rounds]
    assert any(p != tuple(range(len(p))) for p in paths)


@pytest.mark.parametrize(
    "name", ["dflash+best-first", "treeflash+best-first", "dart+continuity", "dart+best-first"]
)
def test_rounds_of_every_method_repeat_exactly_on_a_used_target_and_drafter(name):
    """Not only the text: drafts and scores of a second run equal the first's, bit for bit."""
    method = method_named(name, SAMPLED)
    where = toys.target(layers=method.drafter.layers)
    one = run(method, 40, SAMPLED, target=where).rounds
    run(method, 30, HOT, target=where, prompt=(8,) * 50)
    two = run(method, 40, SAMPLED, target=where).rounds
    for a, b in zip(one, two, strict=True):
        for field in ("tokens", "parents", "log_q", "scores"):
            np.testing.assert_array_equal(getattr(a.draft, field), getattr(b.draft, field))
        assert a.verdict.path == b.verdict.path


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
@pytest.mark.parametrize("name", ["treeflash+best-first", "dart+continuity", "treeflash+chain"])
def test_what_a_method_notes_of_its_nodes_survives_a_trace(name, suffix, tmp_path):
    rounds = run(method_named(name, HOT), 30, HOT, 24, observe=observe).rounds
    header = Header(name, {"budget": 24}, {}, "x", PROMPT)
    write_trace(tmp_path / f"t.{suffix}", Trace(header, tuple(rounds), {}))
    back = read_trace(tmp_path / f"t.{suffix}").rounds
    assert len(back) == len(rounds)
    for one, two in zip(rounds, back, strict=True):
        assert one.draft.notes.keys() == two.draft.notes.keys() != set()
        for key, values in one.draft.notes.items():
            np.testing.assert_array_equal(values, two.draft.notes[key])
        assert [one.why(r) for r in range(len(one.draft))] == [
            two.why(r) for r in range(len(two.draft))
        ]
        for row in range(len(one.draft)):
            a, b = one.candidates_after(row), two.candidates_after(row)
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_array_equal(a.ids, b.ids)
                np.testing.assert_array_equal(a.log_q, b.log_q)


# ── how much is accepted ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["adversarial", "adversarial conditional"])
def test_an_adversarial_drafter_costs_a_round_per_token(name):
    found = run(tree(drafter_named(name, GREEDY)), 50, budget=64)
    assert [r.accepted for r in found.rounds] == [0] * 49


def test_an_oracle_has_every_depth_accepted():
    for method in (tree, line):
        found = run(method(drafter_named("oracle", GREEDY)), 65, budget=7)
        assert [r.accepted for r in found.rounds] == [7] * 8
        assert [len(r.committed) for r in found.rounds] == [8] * 8


def test_a_drafter_right_for_three_depths_gets_three_accepted():
    found = run(line(drafter_named("right until 3", GREEDY)), 41, budget=7)
    assert [r.accepted for r in found.rounds] == [3] * 10


def test_accepted_paths_skip_rows():
    """Otherwise the identity above would not exercise cache compaction at all."""
    found = run(tree(drafter_named("noisy", GREEDY)), STEPS, budget=64)
    paths = [r.verdict.path for r in found.rounds]
    assert sum(p != tuple(range(len(p))) for p in paths) > 30
    assert any(p[:2] == (0, 2) and len(p) > 2 for p in paths)
    assert {len(p) - 1 for p in paths} >= {0, 1, 2, 3}


# ── after every round ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("family", toys.FAMILIES)
@pytest.mark.parametrize("make", [tree, line])
def test_after_every_round_the_cache_is_a_fresh_prefill(make, family):
    drafter = drafter_named("noisy", HOT, family)
    where, text = toys.target(family), None
    settings = Settings(24, 60, HOT)
    for record in decode(where, make(drafter), list(PROMPT), settings):
        text = text or [*PROMPT, int(record.draft.tokens[0])]
        text += record.committed
        if len(text) == len(PROMPT) + 60:
            break  # the last round may be cut short of its path
        assert where.length == len(text) - 1, "the bonus token is not in the cache yet"
        expected = toys.full_forward(text, family)
        for ours, theirs in zip(toys.committed_kv(where), expected.kv, strict=True):
            for side in (0, 1):
                known = theirs[side][:, :, : where.length]
                torch.testing.assert_close(ours[side], known, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("make", [tree, line])
def test_the_drafter_is_given_every_context_token_once_with_its_own_feature(make):
    drafter = drafter_named("noisy", GREEDY)
    found = run(make(drafter), 80, budget=24)
    text = PROMPT + found.tokens
    count = len(drafter.context)
    assert count >= len(text) - 8
    assert tuple(drafter.context[: len(text)]) == text[:count]
    features = torch.cat(drafter.features)
    expected = toys.full_forward(drafter.context).features
    torch.testing.assert_close(features, expected, rtol=1e-5, atol=1e-5)


class Speechless(toys.ToyDrafter):
    """Offers nothing at every other length of the text: all tokens are impossible then."""

    def log_q(self, text):
        log_q = super().noise(text).log_softmax(-1)
        return log_q if len(text) % 2 else torch.full_like(log_q, -torch.inf)


@pytest.mark.parametrize("builder", [best_first, Chain(), OptTree(), OptTree(0.2)])
def test_a_round_without_drafted_nodes_is_a_step_of_plain_decoding(builder):
    found = run(Decoder("m", Speechless(), builder), 60, HOT, 9)
    assert found.tokens == plain(STEPS, HOT)[:60]
    empty = [r for r in found.rounds if r.draft.nodes == 0]
    assert empty and len(empty) < len(found.rounds)
    assert all(len(r.committed) == 1 and r.stop_reason == Cause.NO_DRAFT for r in empty)


def test_rounds_say_where_they_stand():
    found = run(tree(drafter_named("noisy", GREEDY)), 60, budget=24)
    text = PROMPT + found.tokens
    for index, record in enumerate(found.rounds):
        assert record.index == index
        assert record.draft.tokens[0] == text[record.position]
        after = text[record.position + 1 : record.position + 1 + len(record.committed)]
        assert record.committed == after
        assert record.draft.nodes == 24 and record.proposal is not None
        assert min(record.times.draft, record.times.build, record.times.verify) >= 0


def test_new_tokens_of_no_rounds_is_nothing():
    assert new_tokens([]) == []


# ── where it ends ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["oracle", "noisy", "dflash", "adversarial"])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 10, 15, 16, 17, 18, 33])
def test_max_new_tokens_is_exact(count, name):
    found = run(tree(drafter_named(name, HOT)), count, HOT, 16)
    assert found.tokens == plain(STEPS, HOT)[:count]


@pytest.mark.parametrize("count", [1, 2, 9])
def test_max_new_tokens_is_exact_for_plain_decoding(count):
    assert run(AR, count).tokens == plain(STEPS)[:count]


def stops_at(place):
    """Indices of tokens new to the text that stand at this place of an oracle's 8-token rounds."""
    text = plain(STEPS, HOT)
    return [i for i in range(1, STEPS) if text.index(text[i]) == i and (i - 1) % 8 == place][:3]


@pytest.mark.parametrize("make", [tree, line])
@pytest.mark.parametrize("place", range(8))
def test_a_stop_token_ends_the_text_wherever_it_stands_in_a_path(place, make):
    """Places 0 to 6 are drafted nodes of an accepted path, place 7 is the bonus token."""
    text = plain(STEPS, HOT)
    assert stops_at(place), "the text must have a fresh token at every place"
    for index in stops_at(place):
        found = run(make(drafter_named("oracle", HOT)), STEPS, HOT, 7, stop=[text[index]])
        assert found.tokens == text[: index + 1]
        assert len(found.rounds[-1].committed) == place + 1


@pytest.mark.parametrize("name", ["noisy", "dflash", "adversarial", "random"])
@pytest.mark.parametrize("token", [2, 11, 25, 37, 44])
def test_a_stop_token_ends_partial_paths_alike(token, name):
    expected = plain(STEPS, HOT, stop=(token,))
    found = run(tree(drafter_named(name, HOT)), STEPS, HOT, 24, stop=[token])
    assert found.tokens == expected


def test_any_of_several_stop_tokens_ends_the_text():
    expected = plain(STEPS, HOT, stop=(14, 23, 47))
    assert (
        run(tree(drafter_named("noisy", HOT)), STEPS, HOT, 24, stop=[47, 14, 23]).tokens == expected
    )
    assert run(AR, STEPS, HOT, stop=[47, 14, 23]).tokens == expected


def test_a_stop_token_in_a_branch_not_taken_does_not_end_the_text():
    text = plain(STEPS)
    unused = next(t for t in range(toys.VOCABULARY) if t not in text[:40])
    found = run(tree(toys.RandomDrafter()), 40, budget=64, stop=[unused])
    assert any(unused in r.draft.tokens for r in found.rounds)
    assert found.tokens == text[:40]


def test_a_stop_token_after_the_limit_does_not_lengthen_the_text():
    text = plain(STEPS, HOT)
    found = run(tree(drafter_named("oracle", HOT)), 5, HOT, 7, stop=[text[6]])
    assert found.tokens == text[:5]


@pytest.mark.parametrize("method", [AR, tree(toys.RandomDrafter())])
def test_a_first_token_that_stops_gives_one_token_and_no_verification(method):
    found = run(method, 50, stop=[plain(1)[0]])
    assert found.tokens == plain(1)
    assert len(found.rounds) == 1 and found.rounds[0].committed == ()
    assert found.target.forwards == 1


def test_a_stop_token_in_the_prompt_is_no_end():
    assert run(AR, 20, stop=[PROMPT[-1]]).tokens == plain(20, stop=(PROMPT[-1],))


# ── what it costs ────────────────────────────────────────────────────────────────────────────────


def test_plain_decoding_takes_a_forward_per_token():
    found = run(AR, 60)
    assert found.target.forwards == 60
    assert len(found.rounds) == 59


# ── the generator ────────────────────────────────────────────────────────────────────────────────


def test_closing_the_generator_stops_the_run():
    where = toys.target()
    rounds = decode(where, tree(toys.RandomDrafter()), list(PROMPT), Settings(16, 100))
    next(rounds)
    next(rounds)
    rounds.close()
    done = where.forwards
    assert list(rounds) == []
    assert where.forwards == done == 3


def test_nothing_is_computed_before_it_is_asked_for():
    where = toys.target()
    rounds = decode(where, AR, list(PROMPT), Settings(1, 50))
    assert where.forwards == 0
    next(rounds)
    assert where.forwards == 2


@pytest.mark.parametrize("watched", [None, observe])
@pytest.mark.parametrize("name", ["ar", *METHODS[:3]])
def test_no_logits_and_no_prompt_outlive_their_round(name, watched):
    """Of a draft of 1,024 nodes the logits are 200 MB: two rounds' must not be held at once."""
    method = AR if name == "ar" else method_named(name, GREEDY)
    target, alive = toys.target(layers=method.drafter.layers if method.drafter else ()), []

    def noted(call):
        def made(*args):
            scores = call(*args)
            alive.extend(map(weakref.ref, (scores.logits, scores.features)))
            return scores

        return made

    target.score, target.prefill = noted(target.score), noted(target.prefill)
    for _ in decode(target, method, PROMPT, Settings(9, 20), watched):
        assert len(alive) > 3 and not [ref for ref in alive if ref() is not None]


def test_two_runs_on_one_target_do_not_meet():
    where, drafter = toys.target(), toys.dflash_drafter()
    first = run(tree(drafter), 60, SAMPLED, target=where).tokens
    other = run(tree(drafter), 60, SAMPLED, target=where, prompt=(1, 2, 3)).tokens
    again = run(tree(drafter), 60, SAMPLED, target=where).tokens
    assert first == again == plain(STEPS, SAMPLED)[:60]
    assert other == plain(60, SAMPLED, prompt=(1, 2, 3))


def test_an_abandoned_run_leaves_no_trace_in_the_next():
    where, drafter = toys.target(), toys.dflash_drafter()
    abandoned = decode(where, tree(drafter), [9] * 30, Settings(64, 100, HOT))
    for _ in range(4):
        next(abandoned)
    assert run(tree(drafter), 60, target=where).tokens == plain(STEPS)[:60]
    del abandoned


OBSERVED = (
    "dflash+best-first", "dflash+chain", "treeflash+best-first", "dart+continuity",
    "dflash+continuity",
)  # fmt: skip


@pytest.mark.parametrize("rule", usually(("hot",), RULES))
@pytest.mark.parametrize("name", OBSERVED)
def test_observing_changes_nothing(name, rule):
    sampling = RULES[rule]
    blind = run(method_named(name, sampling), TEXT, sampling, 32)
    seen = run(method_named(name, sampling), TEXT, sampling, 32, observe=observe)
    assert blind.tokens == seen.tokens == plain(STEPS, sampling)[:TEXT]
    for a, b in zip(blind.rounds, seen.rounds, strict=True):
        assert a.verdict.path == b.verdict.path and a.committed == b.committed
        np.testing.assert_array_equal(a.draft.tokens, b.draft.tokens)
        asked = a.verdict.target_tokens >= 0
        np.testing.assert_array_equal(
            a.verdict.target_tokens[asked], b.verdict.target_tokens[asked]
        )
        assert a.target_probs is None and b.target_probs is not None
        assert len(b.probe.tvd) == min(a.accepted + 1, 7)


def test_observed_choices_are_what_plain_decoding_would_say_there():
    found = run(tree(toys.dflash_drafter()), 20, HOT, 12, observe=observe)
    text = PROMPT + found.tokens
    for record in found.rounds[:6]:
        for row in range(len(record.draft)):
            path = record.draft.tokens[list(record.draft.path(row))].tolist()
            whole = [*text[: record.position], *path]
            logits = toys.full_forward(whole).logits[-1].numpy()
            assert record.verdict.target_tokens[row] == toys.own_choice(logits, HOT, len(whole))


@pytest.mark.parametrize("method", [AR, tree(toys.RandomDrafter()), tree(toys.dflash_drafter())])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_the_callers_grad_mode_is_its_own_between_rounds(method, sampling):
    rounds = decode(toys.target(), method, list(PROMPT), Settings(8, 12, sampling), observe)
    for _ in rounds:
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        weight = torch.ones(3, requires_grad=True)
        (weight * 2).sum().backward()
        assert weight.grad.tolist() == [2, 2, 2]
    assert torch.is_grad_enabled()


def test_a_run_works_inside_inference_mode_and_between_modes():
    rounds = decode(
        toys.target(), tree(toys.dflash_drafter()), list(PROMPT), Settings(8, 30, SAMPLED)
    )
    taken = []
    for number in range(100):
        with torch.inference_mode(mode=number % 2 == 0):
            record = next(rounds, None)
        if record is None:
            break
        taken.append(record)
    assert tuple(new_tokens(taken)) == plain(STEPS, SAMPLED)[:30]


def test_no_gradient_state_is_kept():
    owner = copy.deepcopy(toys.model()).requires_grad_(True)
    where = Target(owner, toys.LAYERS)
    assert run(tree(toys.dflash_drafter()), 30, SAMPLED, target=where).tokens == plain(30, SAMPLED)
    assert all(not layer.keys.requires_grad for layer in where._kv.layers)


# ── bad input ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": 0}, "budget"),
        ({"budget": -3}, "budget"),
        ({"budget": MAX_BUDGET + 1}, "1024"),
        ({"max_new_tokens": 0}, "max new tokens"),
        ({"max_new_tokens": -1}, "max new tokens"),
        ({"sampling": Sampling(-0.1)}, "temperature"),
        ({"sampling": Sampling(float("nan"))}, "temperature"),
        ({"sampling": Sampling(float("inf"))}, "temperature"),
        ({"sampling": Sampling(1.0, -1)}, "top-k"),
        ({"sampling": Sampling(1.0, 0, 0.0)}, "top-p"),
        ({"sampling": Sampling(1.0, 0, 1.01)}, "top-p"),
        ({"sampling": Sampling(1.0, 0, float("nan"))}, "top-p"),
    ],
)
def test_settings_out_of_range_are_user_errors(changes, words):
    where = toys.target()
    with pytest.raises(UserError, match=words) as error:
        list(decode(where, AR, list(PROMPT), Settings(**changes)))
    assert "\n" not in str(error.value)
    assert where.forwards == 0


@pytest.mark.parametrize("budget", [1, MAX_BUDGET])
def test_the_limits_themselves_are_fine(budget):
    Settings(budget, 1, Sampling(0.0, 0, 1.0)).check()


def test_an_empty_prompt_is_a_user_error():
    with pytest.raises(UserError, match="no tokens"):
        list(decode(toys.target(), AR, [], Settings()))


@pytest.mark.parametrize("token", [-1, toys.VOCABULARY, 10**9])
def test_a_token_outside_the_vocabulary_is_a_user_error(token):
    with pytest.raises(UserError, match="vocabulary"):
        list(decode(toys.target(), AR, [3, token], Settings()))


def test_a_prompt_that_does_not_fit_the_context_is_a_user_error():
    where = toys.target()
    limit = where.context_limit
    with pytest.raises(UserError, match="context"):
        list(decode(where, AR, [1] * (limit - 9), Settings(max_new_tokens=10)))
    assert where.forwards == 0


def test_a_text_that_just_fits_the_context_is_written(monkeypatch):
    where = toys.target()
    monkeypatch.setattr(type(where), "context_limit", len(PROMPT) + 20)
    found = run(tree(drafter_named("noisy", GREEDY)), 20, budget=64, target=where)
    assert found.tokens == plain(20)


def test_stage_times_add_up():
    watch = Stopwatch(torch.device("cpu"), timed=True)
    watch.lap("draft")
    watch.lap("verify")
    times = watch.times
    assert times.draft >= 0 and times.verify >= 0 and times.build == 0
    assert times.total == pytest.approx(times.draft + times.verify)
