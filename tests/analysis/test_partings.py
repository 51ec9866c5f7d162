"""Tie or bug over many texts: what is counted of hand-made traces, and the sentence."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from analysis.engines.partings import (
    DISPUTED,
    NO_TIE,
    PROMPT,
    SAME,
    SHORTER,
    TIE,
    UNKNOWN,
    Partings,
    ask_target,
    compared,
    count_partings,
    pair_texts,
    remarks,
    texts_at,
    tie_or_bug,
)
from analysis.engines.texts import Written, sentences
from app import cli
from app.commands.trace import compare
from app.trace_log import nth_path
from core import ASSETS
from core.errors import UserError
from core.rounds.draft import Draft
from core.rounds.round import Round, TargetProbs, Verdict
from core.traces.schema import Trace
from tests.helpers.fakes import make_header
from tests.helpers.small_traces import read_one, saved

TEXT = (3, 5, 8, 2, 9, 4)
BOUND = 0.1


def run(prompt, tokens=TEXT, odds=None, method="ar", **header) -> Trace:
    """A greedy run that writes these tokens. ``odds``: by number of a token, p of what might stand
    there (None: not recorded); everywhere else p of the token is 0.9."""
    rounds = []
    for n, (root, after) in enumerate(pairwise(tokens)):
        listed = (odds or {}).get(n + 1, {after: 0.9, 31: 0.05})
        probs = None
        if listed is not None:
            ids, p = zip(*sorted(listed.items(), key=lambda item: -item[1]), strict=True)
            probs = TargetProbs(
                np.array([np.nan], np.float32), np.zeros(1, np.int32), np.array([ids]),
                np.log(np.array([p])), np.zeros(1, np.float32),
            )  # fmt: skip
        verdict_ = Verdict((0,), np.array([after]))
        at = len(prompt) + n
        rounds.append(Round(n, at, Draft.root_only(root), verdict_, (after,), probs))
    made = replace(make_header("why?", method), prompt_ids=tuple(prompt), **header)
    return Trace(made, tuple(rounds), {})


def changed(at, token=30):
    return (*TEXT[:at], token, *TEXT[at + 1 :])


# what the one side's trace says where the texts part, the other side's text, and what it is
CASES = {
    SAME: (None, TEXT),
    TIE: ({3: {2: 0.45, 30: 0.43}}, changed(3)),
    NO_TIE: ({3: {2: 0.8, 30: 0.1}}, changed(3)),
    UNKNOWN: ({3: None}, changed(3)),
    SHORTER: (None, TEXT[:4]),
}


@pytest.fixture
def folders(tmp_path):
    """A pair of each kind, in two folders."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    for n, (kind, (odds, theirs)) in enumerate(CASES.items()):
        saved(tmp_path / "one" / f"{n}.jsonl", run((n, 1), odds=odds))
        bare = dict.fromkeys(range(1, 9))
        # the other's files have other names and another order
        saved(tmp_path / "other" / f"{9 - n} {kind[:2]}.jsonl.gz", run((n, 1), theirs, bare))
    return tmp_path


def pairs_of(folder):
    ones, others = (texts_at(folder / name, None) for name in ("one", "other"))
    return compared(pair_texts(ones, others))


def test_a_pair_of_each_kind_is_found_and_counted(folders):
    pairs = pairs_of(folders)
    assert [pair.kind(BOUND) for pair in pairs] == list(CASES)
    found = count_partings(pairs, BOUND)
    assert (found.pairs, found.same, found.ties, found.others, found.unknown) == (5, 1, 1, 1, 1)
    assert found.parted == 3 and found.shorter == 1
    gaps = [pair.gap() for pair in pairs]
    assert gaps[1:3] == pytest.approx([math.log(45 / 43), math.log(8)], rel=1e-5)
    assert gaps[3] is None
    # a stricter and a wider bound
    assert count_partings(pairs, 0.01).ties == 0 and count_partings(pairs, 3).others == 0


@pytest.mark.parametrize(("listed", "token", "kind"), [
    ({2: 0.40, 30: 0.39}, 30, TIE),
    ({7: 0.40, 2: 0.39, 30: 0.38}, 30, TIE),  # three are alike, and the best is neither
    ({7: 0.80, 2: 0.05, 30: 0.05}, 30, NO_TIE),  # alike, and both far below the best
    ({2: 0.60, 7: 0.20}, 30, NO_TIE),  # not listed, so below the last that is
    ({2: 0.30, 7: 0.29}, 30, UNKNOWN),  # not listed, and may be as good as the last
    ({2: 1.00, 30: 1e-12}, 30, NO_TIE),
])  # fmt: skip
def test_a_tie_is_two_tokens_near_the_target_s_best(listed, token, kind, tmp_path):
    one = read_one(saved(tmp_path / "a.jsonl", run((1,), odds={3: listed})))
    other = Written("b", (1,), changed(3, token), None)
    (pair,) = compared([(one, other)])
    assert pair.kind(BOUND) == kind


def parted_at_3(folder, one_p, other_p):
    """A pair that parts at token 3, with p of both sides there."""
    odds = {3: one_p}, {3: other_p}
    one = read_one(saved(folder / "a.jsonl", run((1,), odds=odds[0])))
    other = read_one(saved(folder / "b.jsonl", run((1,), changed(3), odds[1])))
    (pair,) = compared([(one, other)])
    return pair


def test_a_tie_that_one_p_excludes_is_a_disagreement_of_the_targets(tmp_path):
    pair = parted_at_3(tmp_path, {2: 0.90, 30: 0.05}, {30: 0.46, 2: 0.45})
    assert pair.kind(BOUND) == DISPUTED and pair.difference.tied(BOUND) is None
    assert pair.gap() == pytest.approx(math.log(46 / 45), rel=1e-5)
    found = count_partings([pair], BOUND)
    assert (found.ties, found.others, found.disputed, found.parted) == (0, 0, 1, 1)
    assert "suffices" not in tie_or_bug(found) and "weights or precision" in tie_or_bug(found)
    (said,) = remarks(found, ("ours", "theirs"))
    assert said.startswith("Of 1 tie by at least one p, another p excludes 1:")
    (*_, said) = sentences(pair.difference, pair.one, pair.other, BOUND)
    assert said.startswith("the targets disagree")
    assert pair.kind(5) == TIE and pair.kind(0.001) == NO_TIE


@pytest.mark.parametrize("theirs", [{30: 0.46, 2: 0.45}, None, {30: 0.46, 7: 0.45}])
def test_a_tie_by_every_p_that_is_known_is_one(theirs, tmp_path):
    """Nothing is known of a side that lists neither, or only the one."""
    pair = parted_at_3(tmp_path, {2: 0.41, 30: 0.40}, theirs)
    assert pair.kind(BOUND) == TIE
    assert "rounding suffices" in tie_or_bug(count_partings([pair], BOUND))


def test_an_engine_whose_token_its_own_p_does_not_support_is_named(tmp_path):
    one = read_one(saved(tmp_path / "a.jsonl", run((1,), odds={3: {2: 0.8, 30: 0.1}})))
    wrong = run((1,), changed(3), {3: {2: 0.8, 30: 0.1}})
    other = read_one(saved(tmp_path / "b.jsonl", wrong))
    found = count_partings(compared([(one, other)]), BOUND)
    assert found.off == (0, 1)
    (said,) = remarks(found, ("ours", "theirs"))
    assert "In 1 parting the token of theirs is more than 0.1 nats below" in said


# ── the sentence ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("ties", "others", "disputed", "unknown", "says"), [
    (0, 0, 0, 0, "No text parts: 4 of 4 pairs agree"),
    (3, 0, 0, 0, "Ties within 0.1 nats explain all 3 partings"),
    (3, 0, 0, 2, "explain 3 of 5 partings; for 2 more p is not known, so a bug is not excluded"),
    (0, 0, 0, 5, "Whether they are ties is not known: p is recorded at none of 5 partings"),
    (3, 1, 0, 0, "No tie within 0.1 nats explains 1 of 4 partings (25%, 95 % [0.05, 0.70])"),
    (0, 2, 0, 7, "explains 2 of 2 partings (100%"),
    (3, 0, 1, 0, "The targets disagree on 1 of 4 partings"),
    (3, 0, 1, 2, "is not shown to suffice: look for other weights or precision; for 2 more"),
    (2, 1, 1, 0, "explains 1 of 4 partings"),
    (2, 1, 1, 0, "or a lossy rule; on 1 more the targets disagree."),
])  # fmt: skip
def test_the_verdict_follows_from_the_counts(ties, others, disputed, unknown, says):
    known = ties + others + disputed
    parted = known + unknown
    found = Partings(BOUND, 4 + parted, 4, 0, 0, ties, others, disputed, unknown, 0, (0, 0))
    assert says in tie_or_bug(found)
    assert (f"for {unknown} more p" in tie_or_bug(found)) == bool(unknown and known)
    assert ("suffices" in tie_or_bug(found)) == (ties == parted > 0)
    assert found.to_json()["parted"] == parted


def test_where_all_prompts_differ_nothing_is_judged():
    found = Partings(BOUND, 5, 0, 0, 5, 0, 0, 0, 0, 0, (0, 0))
    assert tie_or_bug(found) == "Nothing is judged: the prompts of 5 pairs differ."


# ── pairs, and what a target says that is asked ──────────────────────────────────────────────────


def text(name, prompt=None, tokens=TEXT, **more):
    return Written(name, prompt, tokens, None, **more)


def names(pairs):
    return [(one.name, other.name) for one, other in pairs]


def test_texts_are_paired_by_their_prompts_else_in_their_order():
    ones = [text("a", (1,)), text("b", (2,)), text("c", (2,)), text("d", (4,))]
    others = [text("x", (2,)), text("y", (1,)), text("z", (2,)), text("w", (5,))]
    assert names(pair_texts(ones, others)) == [("a", "y"), ("b", "x"), ("c", "z")]
    assert names(pair_texts([text("a"), text("b", (2,))], others[:2])) == [("a", "x"), ("b", "y")]
    with pytest.raises(UserError, match="cannot be paired"):
        pair_texts([text("a")], others)
    with pytest.raises(UserError, match="their chat templates"):
        pair_texts(ones[3:], others)
    (pair,) = compared(pair_texts(ones[:1], others[:1]))  # a single pair is compared
    assert pair.kind(BOUND) == PROMPT
    found = count_partings([pair], BOUND, unmatched=2)
    assert found.parted == 0 and len(remarks(found, ("", ""))) == 2
    assert tie_or_bug(found).startswith("Nothing is judged")
    bare = compared(pair_texts([text("a"), text("b", (1,))], others[:2]))
    assert remarks(count_partings(bare, BOUND), ("", "")) == [
        "The texts are paired in their order, because not all tell their prompt."
    ]


def test_files_of_a_folder_are_in_the_order_of_their_numbers(tmp_path):
    for n in (1, 2, 9, 10, 11):
        saved(nth_path(tmp_path / "run.jsonl.gz", n), run((n, 1)))
    assert [found.prompt[0] for found in texts_at(tmp_path, None)] == [1, 2, 9, 10, 11]


def test_a_target_is_asked_about_the_text_before():
    heard = []

    def log_p(ids):
        heard.append(list(ids))
        p = np.full(32, 1e-6)
        p[[2, 30]] = 0.5, 0.48
        return np.log(p)

    (pair,) = compared([(text("a", (7, 7)), text("b", None, changed(3)))])
    assert pair.kind(BOUND) == UNKNOWN
    found = ask_target(pair, log_p)
    assert heard == [[7, 7, *TEXT[:3]]]
    assert found.kind(BOUND) == TIE
    assert (found.asked.p, found.asked.other) == pytest.approx((0.5, 0.48))
    for other in (text("b", None, TEXT[:2]), text("b", None, TEXT)):
        (pair,) = compared([(text("a", (7, 7)), other)])
        assert ask_target(pair, log_p) is pair
    (pair,) = compared([(text("a"), text("b", None, changed(3)))])
    assert ask_target(pair, log_p) is pair  # no prompt is told: nothing can be asked


def test_sampled_texts_are_not_judged(tmp_path):
    settings = {"sampling": {"temperature": 1.0, "seed": 3}}
    one = read_one(saved(tmp_path / "a.jsonl", run((1,), settings=settings)))
    with pytest.raises(UserError, match="only greedy ones tell a tie from a bug"):
        compared([(one, Written("b", (1,), changed(3), None))])
    assert compared([(one, one)])[0].difference is None  # the same text needs no tie
    assert one.sampled and not read_one(saved(tmp_path / "b.jsonl", run((1,)))).sampled


def test_of_several_pairs_those_with_a_sampled_text_are_left_out(tmp_path, capsys):
    drawn = {"sampling": {"temperature": 1.0, "seed": 3}}
    for side in ("one", "other"):
        for n, settings in ((1, {}), (2, drawn), (3, {})):
            saved(nth_path(tmp_path / side / "run.jsonl", n), run((n,), settings=settings))
    line = ["trace", "compare", str(tmp_path / "one"), str(tmp_path / "other")]
    assert cli.main(line) == 0
    out = capsys.readouterr().out
    assert "2 of 2 pairs agree" in out and "Left out: 1 pair with a sampled text" in out
    for n in (1, 3):
        saved(nth_path(tmp_path / "one" / "run.jsonl", n), run((n,), settings=drawn))
    assert cli.main(line) == 2


# ── the command ──────────────────────────────────────────────────────────────────────────────────


def test_the_command_over_two_folders(folders, capsys):
    line = ["trace", "compare", str(folders / "one"), str(folders / "other")]
    assert cli.main(line) == 1
    out = capsys.readouterr().out
    assert "No tie within 0.1 nats explains 1 of 2 partings" in out and "token 4" in out
    assert cli.main([*line, "--json", "--bound", "3"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["counts"]["ties"], found["counts"]["others"]) == (2, 0)
    assert [row["kind"] for row in found["differences"]] == [TIE, TIE, UNKNOWN, SHORTER]
    assert cli.main(["trace", "compare", line[2], line[2]]) == 0
    assert "No text parts: 5 of 5 pairs" in capsys.readouterr().out


def test_the_command_asks_the_target_only_where_p_is_not_known(folders, capsys, monkeypatch):
    heard = []

    def log_p(ids):
        heard.append(ids)
        return np.log(np.full(32, 1 / 32))

    monkeypatch.setattr(compare, "_log_p", lambda args: (log_p, "float32"))
    line = ["trace", "compare", str(folders / "one"), str(folders / "other"), "--compute"]
    assert cli.main([*line, "--json"]) == 1
    counts = json.loads(capsys.readouterr().out)["counts"]
    assert (counts["ties"], counts["others"], counts["unknown"]) == (2, 1, 0)
    assert heard == [[3, 1, *TEXT[:3]]]
    monkeypatch.setattr(compare, "_log_p", lambda args: (log_p, "bfloat16"))
    assert cli.main([*line, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["counts"]["bound"] == 0.5


def rounded(log_p):
    """p by logits that bfloat16 holds: the largest, as heads have them, is about 20."""
    logits = torch.tensor(log_p).float() + 19.855
    return logits.bfloat16().float().log_softmax(-1).exp().tolist()


def test_what_rounding_to_bfloat16_parts_is_a_tie(tmp_path, capsys):
    """Engines in bfloat16 and float32: the tokens are alike to the one, and 0.12 nats apart to the
    other. That is one step of a logit of 16 or more."""
    p = {2: 0.45, 30: 0.40, 7: 0.15}
    alike = dict(zip(p, rounded(np.log([*p.values()])), strict=True))
    assert alike[2] == alike[30]
    saved(tmp_path / "a.jsonl", run((1,), odds={3: p}, dtype="float32"))
    theirs = run((1,), changed(3), {3: alike}, dtype="bfloat16")
    saved(tmp_path / "b.jsonl", theirs)
    line = ["trace", "compare", str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    assert cli.main(line) == 1
    assert "both lie within 0.5 nats of the target's best" in capsys.readouterr().out
    assert cli.main([*line, "--bound", "0.1"]) == 1
    assert "the targets disagree" in capsys.readouterr().out
    saved(tmp_path / "b.jsonl", replace(theirs, header=replace(theirs.header, dtype="float32")))
    assert cli.main(line) == 1
    assert "the targets disagree" in capsys.readouterr().out


def test_responses_of_two_files_are_paired(tmp_path, capsys):
    for name, texts in (("a", [TEXT, TEXT]), ("b", [TEXT, changed(2)])):
        lines = [json.dumps({"output_ids": tokens}) for tokens in texts]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines), "utf-8")
    files = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    assert cli.main(["trace", "compare", *files]) == 1
    assert "p is recorded at none of 1 parting" in capsys.readouterr().out
    assert cli.main(["trace", "compare", *files, "--response", "1"]) == 0
    assert cli.main(["trace", "compare", *files, "--response", "3"]) == 2
    (tmp_path / "empty" / "folder.jsonl").mkdir(parents=True)
    assert cli.main(["trace", "compare", files[0], str(tmp_path / "empty")]) == 2
    assert "holds no trace" in capsys.readouterr().err


def test_a_text_without_a_partner_is_exit_code_1(tmp_path, capsys):
    for name, count in (("few", 2), ("more", 3)):
        (tmp_path / name).mkdir()
        for n in range(count):
            saved(tmp_path / name / f"{n}.jsonl", run((n, 1)))
    few, more = str(tmp_path / "few"), str(tmp_path / "more")
    assert cli.main(["trace", "compare", few, few]) == 0
    assert cli.main(["trace", "compare", few, more]) == 1
    out = capsys.readouterr().out
    assert "No text parts: 2 of 2 pairs" in out and "1 text had no partner" in out


def test_sides_of_one_name_are_told_apart_by_their_paths(tmp_path, capsys):
    listed = {3: {2: 0.8, 30: 0.1}}
    for name, tokens in (("ours", TEXT), ("theirs", changed(3))):
        folder = tmp_path / name / "traces"
        folder.mkdir(parents=True)
        for n in (1, 2):
            saved(folder / f"{n}.jsonl", run((n,), tokens, listed))
    ours, theirs = (str(tmp_path / name / "traces") for name in ("ours", "theirs"))
    assert cli.main(["trace", "compare", ours, theirs, "--json"]) == 1
    (said,) = json.loads(capsys.readouterr().out)["remarks"]
    assert f"the token of {theirs} is more than" in said
    files = [f"{folder}/1.jsonl" for folder in (ours, theirs)]
    assert cli.main(["trace", "compare", *files]) == 1
    out = capsys.readouterr().out
    assert all(f"{file}: " in out for file in files)


def test_shipped_runs_of_two_methods_write_one_text(capsys):
    one, other = (str(ASSETS / "traces" / f"chat-{name}.jsonl.gz") for name in ("ar", "ddtree-16"))
    assert cli.main(["trace", "compare", one, other]) == 0
    assert "the same text" in capsys.readouterr().out
