"""Traces of other people's loops: what the recorder writes reads back, and is checked."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from analysis.measures.acceptance import per_depth, tau
from analysis.measures.findings import findings
from analysis.measures.oracle import oracle
from analysis.measures.probe import observe
from analysis.measures.tables import Tables
from core.errors import UserError
from core.rounds.causes import Cause
from core.rounds.round import Times
from core.traces import distributions
from core.traces.reader import read_trace
from core.traces.record import Recorder
from tests import ROOT
from tests.helpers import toys
from tests.helpers.small_rounds import small_round

EXAMPLE = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "record.md").read_text("utf-8"), re.S)


def test_the_documents_example_runs_with_numpy_alone(tmp_path):
    """Every other package is hidden from it."""
    hide = (
        "import sys, importlib.abc\n"
        "class Hide(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.split('.')[0] in {'torch', 'transformers', 'safetensors', 'numba',\n"
        "            'rich', 'pandas', 'orjson', 'gradio', 'plotly', 'tokenizers'}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    code = f"{hide}sys.path.insert(0, {str(ROOT)!r})\n{EXAMPLE[0]}{EXAMPLE[1]}"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)
    trace = read_trace(tmp_path / "mine.jsonl.gz")
    assert trace.complete and [r.accepted for r in trace.rounds] == [2, 0]
    assert [r.committed for r in trace.rounds] == [(4, 4, 8), (2,)]
    assert [r.position for r in trace.rounds] == [3, 6]
    assert trace.rounds[0].text(4) == "4"
    drawn = read_trace(tmp_path / "drawn.jsonl.gz")
    assert drawn.complete and not drawn.faults
    assert drawn.rounds[0].stop_reason == Cause.REFUSED
    np.testing.assert_allclose(drawn.rounds[0].probe.tvd, [0, 0.9], atol=1e-6)


def test_a_recorded_run_is_the_run(tmp_path):
    """A toy's rounds through the recorder: the same tables, drafts and verdicts."""
    drafter = toys.NoisyOracle([*toys.PROMPT, *toys.plain(60)])
    rounds = toys.run(toys.tree(drafter), 30, budget=9).rounds
    path = tmp_path / "a.jsonl"
    run = {"budget": 9, "model": {"name": "toy"}, "read": 99}  # as many as the budget lets it
    with Recorder(path, "ddtree", toys.PROMPT, **run) as record:
        for r in rounds:
            lists = (r.by_depth.ids, r.by_depth.log_q)
            record.round(
                r.draft.tokens.tolist(), r.draft.parents.tolist(), r.verdict.path,
                r.verdict.bonus, r.draft.log_q, lists, Times(verify=0.5), r.committed,
            )  # fmt: skip
    trace = read_trace(path)
    for ours, theirs in zip(trace.rounds, rounds, strict=True):
        assert ours.position == theirs.position and ours.committed == theirs.committed
        assert ours.verdict.path == theirs.verdict.path and ours.status == theirs.status
        assert ours.verdict.bonus == theirs.verdict.bonus
        walked = list(theirs.verdict.path)
        told, known = ours.verdict.target_tokens, theirs.verdict.target_tokens
        np.testing.assert_array_equal(told[walked], known[walked])
        for name in ("tokens", "parents", "depths", "ranks", "log_q"):
            np.testing.assert_array_equal(getattr(ours.draft, name), getattr(theirs.draft, name))
        np.testing.assert_allclose(ours.draft.scores, theirs.draft.scores, rtol=1e-5)
        assert [ours.why(row) for row in range(len(ours.draft))] == [
            theirs.why(row) for row in range(len(theirs.draft))
        ]
    assert tau(Tables.of(trace))["tau"][0] == pytest.approx(
        1 + np.mean([r.accepted for r in rounds])
    )
    assert len(oracle(Tables.of(trace))) == 1


@pytest.mark.parametrize("own_lists", [True, False])
def test_p_and_q_as_arrays_give_what_the_loop_here_measures(tmp_path, own_lists):
    """A toy's logits through the recorder: p, TVD, coverage, ranks and causes are the probe's."""
    scenes, drafter = [], toys.NoisyOracle([*toys.PROMPT, *toys.plain(60)])

    def watch(scene):
        scenes.append(scene)
        return observe(scene)

    run = toys.run(toys.tree(drafter), 30, budget=9, observe=watch).rounds
    with Recorder(tmp_path / "a.jsonl", "mine", toys.PROMPT, 9, read=99) as record:
        for r, scene in zip(run, scenes, strict=True):
            p = scene.logits.double().softmax(-1).numpy()
            whole = scene.session.log_q([0] * r.max_depth).double().exp().numpy()
            asked = np.vstack([whole, np.full_like(whole[:1], np.nan)])
            q = asked[np.minimum(r.draft.depths, r.max_depth)]
            lists = (r.by_depth.ids, r.by_depth.log_q) if own_lists else None
            record.round(
                r.draft.tokens.tolist(), r.draft.parents.tolist(), r.verdict.path,
                r.verdict.bonus, lists=lists, committed=r.committed, p=p, q=q,
            )  # fmt: skip
    trace = read_trace(tmp_path / "a.jsonl")
    assert not trace.faults
    for ours, theirs in zip(trace.rounds, run, strict=True):
        for name in ("log_p", "rank", "top_ids", "top_log_p", "entropy"):
            values = (getattr(x.target_probs, name) for x in (ours, theirs))
            np.testing.assert_allclose(*values, atol=1e-4)
        for name in ("tvd", "coverage", "entropy_q", "rank_q"):
            np.testing.assert_allclose(
                getattr(ours.probe, name), getattr(theirs.probe, name), atol=1e-4
            )
        np.testing.assert_allclose(ours.draft.log_q, theirs.draft.log_q, atol=1e-4)
        np.testing.assert_array_equal(ours.draft.ranks, theirs.draft.ranks)
        if own_lists:  # told that the builder looks at 99, so no list counts as short
            causes = [theirs.why(n) for n in range(len(theirs.draft))]
            causes = [Cause.OUTSIDE if c == Cause.SHORT_LIST else c for c in causes]
            assert [ours.why(n) for n in range(len(ours.draft))] == causes


@pytest.mark.parametrize(
    "drawn, temperature, accepted, cause",
    [
        (None, 1.0, 1, Cause.REFUSED),
        (None, 1.0, 2, Cause.BEYOND),  # all was accepted: its bonus token is the target's own
        (None, 0.0, 1, Cause.PRUNED),
        (False, 1.0, 1, Cause.PRUNED),
        (True, 0.0, 1, Cause.REFUSED),
    ],
)
def test_a_bonus_token_may_be_drawn_from_what_a_refused_one_left(
    tmp_path, drawn, temperature, accepted, cause
):
    lists = (np.array([[4, 8], [6, 7]]), np.log([[0.6, 0.4], [0.6, 0.4]]))
    with Recorder(
        tmp_path / "t.jsonl", "mine", [1], 2, read=9, settings={"temperature": temperature}
    ) as record:
        made = record.round(
            [9, 4, 6], [-1, 0, 1], [*range(accepted + 1)], 7, lists=lists, drawn=drawn
        )
    (read,) = read_trace(tmp_path / "t.jsonl").rounds
    assert made.stop_reason == read.stop_reason == cause
    assert read.verdict.bonus == 7


@pytest.mark.parametrize(
    ("more", "cause", "last"),
    [({}, Cause.UNKNOWN, None), ({"drafter": {"depths": 2}}, Cause.BEYOND, 2)],
)
def test_a_leaf_that_was_not_asked_is_the_last_depth_only_where_that_is_told(
    tmp_path, more, cause, last
):
    q = np.full((2, 10), 0.1)
    with Recorder(tmp_path / "a.jsonl", "mine", [1], 9, **more) as record:
        made = record.round([9, 4, 6], [-1, 0, 1], [0, 1, 2], 7, q=q)
    trace = read_trace(tmp_path / "a.jsonl")
    (read,), tables = trace.rounds, Tables.of(trace)
    assert made.stop_reason == read.stop_reason == cause
    assert made.max_depth == read.max_depth == (last or 0)
    assert per_depth(tables)["depth"].max() == 2
    assert oracle(tables)["possible"].tolist() == [2]  # nobody knows what stood after the leaf


EVEN = np.full((2, 4), 0.25)
WRONG = {
    "q after row 1 of round 1 is not a distribution: its sum is 0.5": lambda r: r.round(
        [3, 2], [-1, 0], [0], 1, q=EVEN * [[1.0], [0.5]]
    ),
    "p of round 1 has the shape": lambda r: r.round([3, 2], [-1, 0], [0], 1, p=EVEN[0]),
    "round 1 has 2 rows, and its q 4": lambda r: r.round(
        [3, 2], [-1, 0], [0], 1, q=np.vstack([EVEN, EVEN])
    ),
    "p of round 1 is not told after row 1": lambda r: r.round([3, 2], [-1, 0], [0], 1, p=EVEN[:1]),
    "has 2 tokens and 1 parents": lambda r: r.round([9, 4], [-1], [0], 1),
    "has 0 tokens": lambda r: r.round([], [], [0], 1),
    "a parent that does not stand before": lambda r: r.round([9, 4], [-1, 1], [0], 1),
    "is not a path from the root": lambda r: r.round([9, 4, 5], [-1, 0, 0], [0, 1, 2], 1),
    "path of round 1 is": lambda r: r.round([9, 4], [-1, 0], [], 1),
    "round 1 says that draft took -0.01 s": lambda r: r.round(
        [9, 4], [-1, 0], [0], 1, times=Times(draft=-0.01)
    ),
    "round 1 says that verify took nan s": lambda r: r.round(
        [9, 4], [-1, 0], [0], 1, times=Times(verify=float("nan"))
    ),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_no_round_is_one_sentence(tmp_path, said):
    with (
        pytest.raises(UserError, match=said),
        Recorder(tmp_path / "a.jsonl", "mine", [1]) as record,
    ):
        WRONG[said](record)
    assert not read_trace(tmp_path / "a.jsonl").complete  # and what was written is kept


def test_what_q_gives_nothing_is_not_covered_however_few_tokens_there_are():
    p, q = np.array([[0.1, 0.2, 0.3, 0.4]]), np.array([[0.5, 0.5, 0, 0]])
    probe = distributions._probe(p.repeat(2, 0), q.repeat(2, 0), np.array([2, -1]))
    assert probe.coverage[0].tolist() == pytest.approx([0.1, *[0.3] * 15])
    assert probe.rank_q.tolist() == [0, -1] and probe.tvd[0] == pytest.approx(0.7)


def test_no_depth_behind_an_unknown_q_is_probed():
    record, p = small_round(), np.full((6, 50), 1 / 50)
    q = p.copy()
    q[record.verdict.path[1]] = np.nan
    assert len(distributions.with_measures(record, p, q).probe.tvd) == 1


def test_of_tokens_with_one_q_the_first_listed_alone_is_the_best(tmp_path):
    """A smoothed count, or logits of 16 bits, gives several tokens the same q."""
    q = np.full((2, 40), 1 / 40)
    p = np.eye(40)[[7, 0]]
    with Recorder(tmp_path / "a.jsonl", "mine", [5, 3], 1) as record:
        record.round([9, 0], [-1, 0], [0], 7, p=p, q=q)
    (seen,) = read_trace(tmp_path / "a.jsonl").rounds
    assert seen.probe.rank_q.tolist() == [8] and seen.probe.coverage[0, 6:8].tolist() == [0, 1]


def test_siblings_without_lists_are_ranked_by_q_alone(tmp_path):
    with Recorder(tmp_path / "t.jsonl", "theirs", [1]) as record:
        told = record.round([9, 4, 5], [-1, 0, 0], [0], 9, log_q=[0, -2, -1])
        untold = record.round([9, 4, 5], [-1, 0, 0], [0], 9)
        partly = record.round([9, 4, 5, 6], [-1, 0, 0, 1], [0], 9, log_q=[0, -2, np.nan, -1])
    assert told.draft.ranks.tolist() == [0, 2, 1]
    assert untold.draft.ranks.tolist() == [0, -1, -1]
    assert partly.draft.ranks.tolist() == [0, -1, -1, 1]


def test_a_chain_after_a_tree_is_a_tree_that_happens_to_be_one(tmp_path):
    lists = np.array([[5, 7], [6, 8]]), np.log([[0.6, 0.4], [0.6, 0.4]])
    chain, tree = [-1, 0, 1], [-1, 0, 0]
    for shapes, causes in (
        ((chain, chain), [Cause.NOT_READ, Cause.NOT_READ]),
        ((tree, chain), [Cause.PRUNED, Cause.PRUNED]),
    ):
        with Recorder(tmp_path / "t.jsonl", "mine", [1], 2) as record:
            made = [
                record.round([root, 5, 6 if shape is chain else 7], shape, [0, 1], 8, lists=lists)
                for root, shape in zip((9, 8), shapes, strict=True)
            ]
        assert [each.stop_reason for each in made] == causes


@pytest.mark.parametrize("rule", [{"temperature": 0.0}, {"temperature": 1.0}, {}])
def test_a_chain_without_q_holds_the_best_tokens_only_where_nothing_was_drawn(tmp_path, rule):
    """Of a chain nothing is said of siblings: none was drafted."""
    settings = {"sampling": rule}
    with Recorder(tmp_path / "t.jsonl", "theirs", [1], 2, settings=settings) as record:
        for taken in (2, 1, 0, 1, 0, 1, 0):
            record.round([9, 4, 5], [-1, 0, 1], [*range(taken + 1)], 9)
    tables = Tables.of(read_trace(tmp_path / "t.jsonl"))
    first = per_depth(tables).iloc[0]
    assert (rule == {"temperature": 0.0}) == (first["top1"] == first["acceptance"])
    assert not any("best token" in row.words for row in findings(tables))


def test_a_loop_in_torch_hands_over_its_tensors(tmp_path):
    p = torch.full((3, 8), 1 / 8, dtype=torch.bfloat16, requires_grad=True)
    rows = torch.tensor([[7, 4, 6], [-1, 0, 1]])
    with Recorder(tmp_path / "a.jsonl", "mine", [1], 2) as record:
        record.round(*rows, torch.tensor([0, 1]), torch.tensor(5), p=p, q=p[:2])
    (seen,) = read_trace(tmp_path / "a.jsonl").rounds
    assert seen.committed == (4, 5) and seen.probe.tvd.tolist() == [0, 0]
    assert not read_trace(tmp_path / "a.jsonl").faults


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"q": np.full((2, 6), 1 / 6)}, "is of 8 tokens and q of 6"),
        ({"q": [[1.5, -0.5, *[0] * 6]] * 2}, "its least value -0.5"),
        ({"tokens": [7, 4, 9]}, "has token 9, and its p is of 8 tokens"),
        ({"tokens": [7.0, 4, 6]}, "not a whole number"),
        ({"bonus": None}, "not a whole number"),
        ({"committed": [4, 6]}, "is not a beginning of its accepted tokens"),
    ],
)
def test_data_that_do_not_fit_one_another_are_one_sentence(tmp_path, told, says):
    even = np.full((3, 8), 1 / 8)
    sound = {"tokens": [5, 4, 3], "parents": [-1, 0, 1], "path": [0, 1], "bonus": 5, "p": even}
    with (
        pytest.raises(UserError, match=says),
        Recorder(tmp_path / "a.jsonl", "mine", [1], 2) as record,
    ):
        record.round(**{**sound, "q": even[:2], **told})


def test_a_round_begins_with_the_bonus_token_before_it(tmp_path):
    with (
        pytest.raises(UserError, match="begins with token 5, but the bonus token before is 8"),
        Recorder(tmp_path / "a.jsonl.gz", "mine", [1]) as record,
    ):
        record.round([9], [-1], [0], 8)
        record.round([5], [-1], [0], 1)
    assert len(read_trace(tmp_path / "a.jsonl.gz").rounds) == 1
