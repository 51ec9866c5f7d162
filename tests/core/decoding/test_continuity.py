"""DART's search against Algorithm 1 written plainly, at its edges, and in what it notes."""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.decoding.decode import Decoder
from core.drafting.session import FactorisedSession
from core.errors import UserError
from core.methods.dart import NOTES, ContinuityOptions
from core.methods.dart.search import ContinuitySearch, load
from core.ngram import BuildOptions, build_store
from core.rounds.draft import Candidates
from tests.helpers import toys
from tests.helpers.ngram_reference import count_grams, store_of

VOCABULARY = 60


def continued(grams, before, token):
    """(P, context length, count) by the longest context the token was ever seen after."""
    for length in (2, 1):
        context = tuple(before[-length:])
        count = grams.get((*context, token), 0) if len(context) == length else 0
        if count:
            return count / grams[context], length, count
    return 0.0, 0, 0


def algorithm_1(candidates, text, budget, w, grams, stops):
    """The search with lists and dictionaries: the chosen nodes in order, and all that were met."""
    ids, log_q = candidates.ids[:, : w.width], candidates.log_q[:, : w.width].astype(np.float64)
    beam, met = [None], []
    for level in range(len(ids)):
        weight = (level + 1.0) ** -w.level_power
        odds = np.exp(log_q[level] - log_q[level].max())
        odds /= odds.sum()
        fresh = []
        for parent in beam:
            path = [*parent.path] if parent else []
            for rank, token in enumerate(ids[level].tolist()):
                q_term = weight * (np.log(odds[rank] + w.epsilon) * w.logit_decay**level)
                p, context, count = continued(grams, [*text, *path], token)
                gram_term = weight * w.ngram_weight * math.log(p + w.epsilon)
                if w.ngram_weight == 0 or (level == 0 and not w.ngram_at_first):
                    gram_term, context, count = 0.0, None, None
                score = (parent.score if parent else 0.0) + q_term + gram_term
                bound = min(score, parent.bound) if parent else score
                node = SimpleNamespace(path=(*path, token), score=score, bound=bound)
                node.ranks = (*(parent.ranks if parent else ()), rank)
                node.q_term, node.gram_term, node.context = q_term, gram_term, context
                node.parent, node.count = parent, count
                fresh.append(node)
        met += fresh
        best = sorted(fresh, key=lambda n: -n.score)  # stable: equal scores keep their order
        ended = [n for n in best if n.path[-1] in stops]
        beam = [*(n for n in best if n.path[-1] not in stops), *ended][: w.beam]
    return sorted(met, key=lambda n: -n.bound)[:budget], met


def check(draft, expected, candidates, text):
    """The draft node by node, in order."""
    assert draft.nodes == len(expected)
    assert draft.tokens[0] == text[-1] and draft.parents[0] == -1
    row_of = {(): 0}
    for row, node in enumerate(expected, 1):
        row_of[node.ranks] = row
        assert draft.parents[row] == row_of[node.ranks[:-1]] < row, "prefix closed, parents first"
        assert draft.tokens[row] == node.path[-1] and draft.depths[row] == len(node.path)
        assert draft.ranks[row] == node.ranks[-1] + 1
        assert draft.scores[row] == pytest.approx(node.score, rel=1e-6, abs=1e-6)
        q_term, gram_term, context, count = (draft.notes[name][row] for name in NOTES)
        assert q_term == pytest.approx(node.q_term, rel=1e-6, abs=1e-7)
        assert gram_term == pytest.approx(node.gram_term, rel=1e-6, abs=1e-7)
        if node.context is None:
            assert np.isnan(context) and np.isnan(count)
        else:
            assert (context, count) == (node.context, node.count)
        place = len(node.path) - 1, node.ranks[-1]
        assert draft.log_q[row] == np.float32(candidates.log_q[place]), "q is kept apart"
    assert all(np.isnan(draft.notes[name][0]) for name in NOTES)


def a_table(rng, depths, width):
    """Random log q of ``width`` distinct tokens per depth, best first, of a larger vocabulary."""
    logits = 2 * rng.normal(size=(depths, VOCABULARY))
    log_q = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    ids = np.argsort(-log_q, axis=1)[:, :width]
    return Candidates(ids, np.take_along_axis(log_q, ids, 1).astype(np.float32))


def a_text(rng, length=400, tokens=VOCABULARY):
    """Text in which some grams are frequent."""
    return (tokens * rng.power(0.4, length)).astype(int).tolist()


def both(candidates, text, budget, grams, stops=(), **changes):
    """Our search's draft and Algorithm 1's nodes, checked against each other."""
    options = ContinuityOptions(**changes)
    store = store_of(grams, VOCABULARY)
    search = ContinuitySearch(store, np.array(sorted(stops), np.int64), options)
    draft = search(FactorisedSession(candidates), text, budget)
    expected, met = algorithm_1(candidates, text, budget, options, grams, stops)
    check(draft, expected, candidates, text)
    assert (draft.proposal.read, draft.proposal.beam) == (options.width, options.beam)
    return SimpleNamespace(draft=draft, expected=expected, met=met)


@pytest.mark.parametrize("at_first", [True, False])
@pytest.mark.parametrize("budget", [1, 2, 7, 59, 64, 300, 1024])
def test_the_search_is_algorithm_1_with_the_papers_constants(budget, at_first):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        history = a_text(rng, 3000)
        candidates, text, grams = a_table(rng, 8, 30), history[50:60], count_grams([history])
        both(candidates, text, budget, grams, {3, 17}, ngram_at_first=at_first)


@pytest.mark.parametrize(
    "changes",
    [
        {"width": 1},
        {"width": 2, "beam": 1},
        {"width": 5, "beam": 5},
        {"width": 1024},
        *({"beam": beam} for beam in (1, 3, 1024)),
        *({"ngram_weight": weight} for weight in (0.0, 3.0)),
        *({"logit_decay": decay} for decay in (1.0, 0.0)),
        *({"level_power": power} for power in (0.0, 2.0)),
        {"epsilon": 1e-3},
        {"ngram_weight": 0.0, "ngram_at_first": False},
    ],
    ids=str,
)
def test_every_constant_does_what_the_formula_says(changes):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        history = a_text(rng)
        candidates = a_table(rng, 5, 12)
        both(candidates, history[9:14], 40, count_grams([history]), {5}, **changes)


def test_the_defaults_are_the_papers():
    assert ContinuityOptions() == ContinuityOptions(25, 20, "", 0.5, 0.9, 0.7, 1e-10, True)


@st.composite
def searches(draw):
    """Small searches on coarse grids: equal q, equal counts, any constants."""
    depths, width = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    value = st.sampled_from([-0.1, -0.5, -1.0, -3.0, -30.0])
    log_q = [
        sorted(draw(st.lists(value, min_size=width, max_size=width)), reverse=True)
        for _ in range(depths)
    ]
    ids = [draw(st.permutations(range(6)))[:width] for _ in range(depths)]
    # tokens of a generator of its own: lists that hypothesis draws hardly repeat a gram
    history = np.random.default_rng(draw(st.integers(0, 999))).integers(0, 6, 40)
    weights = draw(
        st.fixed_dictionaries(
            {
                "width": st.integers(1, 6),
                "beam": st.integers(1, 8),
                "ngram_weight": st.sampled_from([0.0, 0.5, 2.0]),
                "level_power": st.sampled_from([0.0, 0.7]),
                "ngram_at_first": st.booleans(),
            }
        )
    )
    return SimpleNamespace(
        candidates=Candidates(np.array(ids), np.array(log_q, np.float32)),
        text=draw(st.lists(st.integers(0, 5), min_size=1, max_size=4)),
        grams=count_grams([history[: draw(st.sampled_from((0, 8, 40)))].tolist()]),
        stops=draw(st.sets(st.integers(0, 5), max_size=3)),
        budget=draw(st.integers(1, 60)),
        weights=weights,
    )


@settings(max_examples=300)
@given(searches())
def test_any_search_is_algorithm_1_ties_included(s):
    both(s.candidates, s.text, s.budget, s.grams, s.stops, **s.weights)


def test_scores_that_rise_stay_prefix_closed():
    """log(1 + ε) > 0: a sure token after a sure n-gram scores above its own parent."""
    grams = count_grams([[1] * 200])
    candidates = Candidates(np.full((6, 1), 1), np.zeros((6, 1), np.float32))
    for budget in range(1, 7):
        found = both(candidates, [1, 1], budget, grams, width=1, epsilon=1e-2)
        assert found.draft.depths.tolist() == list(range(budget + 1))
    assert (np.diff(found.draft.scores) > 0)[1:].all()


def test_tokens_of_no_probability_are_bearable():
    log_q = np.array([[0.0, -np.inf, -np.inf]] * 3, np.float32)
    search = ContinuitySearch(store_of({}, VOCABULARY), np.zeros(0, np.int64))
    for shape in ((0, 4), (3, 0)):
        lists = Candidates(np.zeros(shape, np.int64), np.zeros(shape, np.float32))
        assert not search(FactorisedSession(lists), [1], 30).nodes
    draft = both(Candidates(np.tile([4, 5, 6], (3, 1)), log_q), [1], 30, {}).draft
    assert np.isfinite(draft.scores).all() and draft.log_q.min() == -np.inf
    log_q[1] = -np.inf  # a drafter of one's own may have nothing to say of a depth
    session = FactorisedSession(Candidates(np.tile([4, 5, 6], (3, 1)), log_q))
    draft = toys.continuity()(session, [1], 30)
    assert np.isfinite(draft.scores).all() and draft.nodes == 30


def test_the_search_reads_the_lists_by_depth_whatever_q_depends_on():
    log_q = toys.RandomDrafter(vocabulary=VOCABULARY).log_q([1, 2])

    def after(depth, token):
        return log_q[depth].roll(token)

    session, search = toys.TableSession(log_q, after, 2, 4, 4), toys.continuity()
    plain = FactorisedSession(session.by_depth)
    one, two = (search(s, [1, 2], 20) for s in (plain, session))
    np.testing.assert_array_equal(one.tokens, two.tokens)
    assert not session.asked and one.proposal is not None and two.proposal is not None
    for proposal in (one.proposal, two.proposal):
        assert proposal.factorised_lists and proposal.read == 25
    by_path = toys.FunctionSession(lambda path: log_q[0], 2, 4, 16)
    with pytest.raises(UserError, match="continuity needs a drafter that lists tokens by depth"):
        search(by_path, [1, 2], 20)


def test_searching_leaves_candidates_and_store_alone():
    rng = np.random.default_rng(1)
    history = a_text(rng)
    candidates, store = a_table(rng, 5, 12), store_of(count_grams([history]), VOCABULARY)
    before = candidates.ids.copy(), candidates.log_q.copy(), [a.copy() for a in store.arrays]
    search = ContinuitySearch(store, np.array([], np.int64))
    one, two = (search(FactorisedSession(candidates), history[:5], 50) for _ in "ab")
    np.testing.assert_array_equal(one.tokens, two.tokens)
    np.testing.assert_array_equal(candidates.ids, before[0])
    np.testing.assert_array_equal(candidates.log_q, before[1])
    for array, kept in zip(store.arrays, before[2], strict=True):
        np.testing.assert_array_equal(array, kept)


# ── loading ──────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Facts:
    name: str = "toy"
    vocabulary: int = VOCABULARY
    stop_ids: frozenset[int] = frozenset({9, 4})
    tokenizer_hash: str = ""


@pytest.fixture
def store_file(tmp_path):
    path = tmp_path / "grams.safetensors"
    build_store([[1, 2, 3, 1, 2, 3]], path, VOCABULARY, BuildOptions(tokenizer="one"))
    return str(path)


def test_a_store_is_opened_by_its_path_and_constants_are_taken(store_file):
    options = ContinuityOptions(ngram=store_file, beam=3, ngram_at_first=False)
    for tokenizer in ("one", ""):
        search = load(Facts(tokenizer_hash=tokenizer), options)
        assert search.store.tokens == 6 and search.stops.tolist() == [4, 9]
        assert search.options == options
    assert load(Facts(), ContinuityOptions(ngram_weight=0.0)).store.nodes == 0


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Facts(vocabulary=61), "vocabulary of 60.*has 61"),
        (Facts(tokenizer_hash="two"), "another tokenizer"),
    ],
)
def test_another_targets_store_is_refused(target, words, store_file):
    one_sentence(words, target, store_file)


@pytest.mark.parametrize("name", ["x.safetensors", "gone.safetensors", "."])
def test_a_store_that_is_none_is_one_sentence(name, tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"nothing")
    one_sentence(".", Facts(), str(tmp_path / name))


def test_a_target_without_a_store_is_told_how_to_get_one():
    one_sentence("python -m app model ngram.*ngram_weight=0", Facts(), "")


def one_sentence(words, target, store):
    with pytest.raises(UserError, match=words) as error:
        load(target, ContinuityOptions(ngram=store))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("width", "budget", "asked"), [(25, 4, 25), (40, 4, 40), (25, 30, 25)])
def test_the_drafter_is_asked_for_all_that_the_search_looks_at(width, budget, asked, monkeypatch):
    """For any budget the softmax runs over ``width`` tokens, and others are not seen."""
    drafter, widths = toys.dflash_drafter(), []
    begin = drafter.begin
    monkeypatch.setattr(drafter, "begin", lambda root, w: widths.append(w) or begin(root, w))
    method = Decoder("m", drafter, toys.continuity(ngram_weight=0.0, width=width))
    record = toys.run(method, 3, budget=budget).rounds[0]
    assert widths[0] == asked and record.by_depth.ids.shape[1] == asked
    assert record.proposal.read == width
    top = toys.run(toys.tree(toys.dflash_drafter()), 3, budget=48).rounds[0].by_depth
    options = ContinuityOptions(ngram_weight=0.0, width=width)
    expected, _ = algorithm_1(top, [1], budget, options, {}, ())
    assert record.draft.tokens[1:].tolist() == [n.path[-1] for n in expected]
