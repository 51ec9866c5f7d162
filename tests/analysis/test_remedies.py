"""Remedies in findings: never one thing and its opposite, of any trace, and in their words.

Causes are read off the raw lines once more.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.measures.acceptance import per_depth
from analysis.measures.finding import Finding
from analysis.measures.findings import findings
from analysis.measures.misses import miss
from analysis.measures.remedies import Claim, Remedy
from analysis.measures.tables import Tables
from core import ASSETS
from core.rounds.causes import Cause
from core.rounds.draft import Array
from core.rounds.round import Probe, Round
from core.stats import FEW_SEEN
from core.traces.reader import read_trace
from core.traces.record import Recorder
from tests.helpers import raw_numbers
from tests.helpers.timing import amount

SHIPPED = sorted(
    path for name in ("traces", "learn") for path in (ASSETS / name).glob("*.jsonl.gz")
)
BUDGET = 8
NOT_KNOWN = "whether more nodes, a wider tree or longer lists would help these is not known"
# what a claim sounds like; a sentence without these words makes none
SOUNDS = {
    (
        Remedy.NODES,
        Claim.HELPS,
    ): r"More nodes would help \d|more nodes, (or a better order|with longer)",
    (Remedy.NODES, Claim.UNKNOWN): NOT_KNOWN,
    (
        Remedy.WIDER,
        Claim.HELPS,
    ): r"A wider tree would help \d|\(a wider tree\)",
    (Remedy.WIDER, Claim.UNKNOWN): rf"{NOT_KNOWN}|Whether a wider tree would help is not known",
    (Remedy.WIDER, Claim.NOT): "a wider tree of the same lists would help none",
    (
        Remedy.LISTS,
        Claim.COULD,
    ): "longer lists that the builder reads, or a better drafter, could help",
    (Remedy.LISTS, Claim.UNKNOWN): NOT_KNOWN,
    (Remedy.VOCABULARY, Claim.COULD): "a larger draft vocabulary could help",
    (Remedy.DEEPER, Claim.COULD): "more depths could help",
    (Remedy.DEEPER, Claim.UNKNOWN): "whether the drafter goes deeper was not recorded",
    (Remedy.DEEPER, Claim.NOT): "more depths would help none",
    (Remedy.DRAFT, Claim.UNKNOWN): "whether a draft there would help is not known",
    (Remedy.CLOSER, Claim.HELPS): "a q closer to p would help",
}


def check(found: list[Finding]) -> dict[str, dict[Remedy, Claim]]:
    """No two findings of a label differ on a remedy, and each says what it claims and no more.
    Gives what each label claims."""
    said: dict[str, dict[Remedy, set[Claim]]] = defaultdict(lambda: defaultdict(set))
    for each in found:
        for remedy, claim in each.claims.items():
            said[each.label][remedy].add(claim)
        heard = {key for key, words in SOUNDS.items() if re.search(words, each.words)}
        claimed = set(each.claims.items())
        assert claimed <= heard, each
        helped = {remedy for remedy, claim in claimed if claim in (Claim.HELPS, Claim.COULD)}
        assert {key for key in heard - claimed if key[0] not in helped} == set(), each
    for label, remedies in said.items():
        assert all(len(claims) == 1 for claims in remedies.values()), (label, found)
    return {label: {r: next(iter(c)) for r, c in own.items()} for label, own in said.items()}


def test_no_two_findings_on_a_shipped_trace_contradict_each_other():
    traces = {f"{path.parent.name}/{path.name}": read_trace(path) for path in SHIPPED}
    claims = check(findings(Tables.of(traces), by="run"))
    chain = claims["traces/chat-dflash.jsonl.gz"]
    assert chain[Remedy.WIDER] is Claim.HELPS and Remedy.NODES not in chain
    assert claims["traces/chat-eagle3.jsonl.gz"][Remedy.VOCABULARY] is Claim.COULD


def test_a_token_beyond_this_budget_s_lists_is_told_alike_by_round_and_in_the_report():
    trace = read_trace(ASSETS / "traces" / "chat-ddtree-16.jsonl.gz")
    found = [each for r in trace.rounds if (each := miss(r)) and r.stop_reason is Cause.SHORT_LIST]
    assert found and all(each.nodes and each.nodes > 16 and each.rank > 16 for each in found)
    said = {each.about: each for each in findings(Tables.of(trace), by="run")}
    for about in ("ends", "width"):
        assert said[about].claims[Remedy.NODES] is Claim.HELPS
    assert f"{len(found)} ended at a token beyond what this budget lists" in said["ends"].words
    pruned = sum(r.stop_reason is Cause.PRUNED for r in trace.rounds)
    n = len(trace.rounds)
    assert f"More nodes would help {pruned + len(found)} of {n} walks" in said["width"].words


@pytest.mark.parametrize("refused", [True, False])
def test_what_a_wider_tree_would_bring_a_walk_without_a_drafted_or_with_a_refused_token(
    tmp_path, refused
):
    """The list has the wanted token second, and nobody knows what a wider tree had brought."""
    with Recorder(path := tmp_path / "a.jsonl", "mine", [1], budget=8, read=1) as record:
        root = 0
        for _ in range(8):
            lists = (np.array([[5, 7, 9]]), np.array([[-0.5, -1.5, -3.0]]))

            def more(made: Round) -> Round:
                curve = np.full((1, 16), 0.7, np.float32)
                one = np.ones(1, np.float32)
                probe = Probe(one, curve, one, np.array([2], np.int32))
                drawn = replace(made.verdict, bonus_token=7) if refused else made.verdict
                return replace(made, probe=probe, verdict=drawn)

            nodes = ([root, 5], [-1, 0]) if refused else ([root], [-1])
            record.round(*nodes, [0], 7, lists=lists, more=more)
            root = 7
        record.round([root, 7], [-1, 0], [0, 1], 3, lists=lists)
    tables = Tables.of({"A": read_trace(path)})
    cause = Cause.REFUSED if refused else Cause.NO_DRAFT
    assert tables.rounds["stop"].tolist() == [*[cause] * 8, Cause.BEYOND]
    claims = check(found := findings(tables, by="run"))["A"]
    assert claims[Remedy.WIDER] is Claim.UNKNOWN, found


def test_a_walk_behind_the_text_s_end_needs_no_remedy(tmp_path):
    with Recorder(path := tmp_path / "a.jsonl", "mine", [1], budget=2, read=3) as record:
        lists = (np.array([[5, 7, 9], [5, 7, 9]]), np.array([[-0.5, -1.5, -3.0]] * 2))
        for root in (4, *[3] * 8):
            record.round([root, 5, 7], [-1, 0, 1], [0, 1, 2], 3, lists=lists)
        record.round([3, 5, 7], [-1, 0, 1], [0, 1, 2], 3, lists=lists, committed=[5])
    tables = Tables.of({"A": read_trace(path)})
    assert tables.rounds["stop"].tolist() == [*[Cause.BEYOND] * 9, Cause.TEXT_ENDED]
    said = {each.about: each.words for each in findings(tables, by="run")}
    assert "1 went beyond the end of the text: nothing was lost there." in said["ends"]
    assert said["depth"].startswith("9 of 10 walks used the whole depth: more")
    check(findings(tables, by="run"))


# ── made-up traces, as other people's loops write them ───────────────────────────────────────────

DEPTHS, LISTED, WORDS = 4, 5, 30


def grown(rng: np.random.Generator, lists: Array, chain: bool) -> tuple[list[int], list[int]]:
    """Tokens and parents of a draft from lists [L, K], without the root's token."""
    tokens, parents, depths = [0], [-1], [0]
    for row in range(40):
        if row < len(tokens) <= 12 and depths[row] < DEPTHS and (chain or rng.random() < 0.8):
            for token in lists[depths[row], : 1 if chain else rng.integers(1, 4)].tolist():
                tokens.append(token)
                parents.append(row)
                depths.append(depths[row] + 1)
    cut = int(rng.integers(1, len(tokens) + 1)) if rng.random() < 0.3 else len(tokens)
    return tokens[:cut], parents[:cut]


def recorded(path: Path, seed: int, chain: bool, listed: bool, read: int | None, probed: bool):
    """A run of 12 rounds whose target takes a random path and then another token."""
    rng, root = np.random.default_rng(seed), 0

    def probe(record: Round) -> Round:
        seen = min(record.accepted + 1, DEPTHS)
        curve = np.sort(rng.random((seen, 16)), axis=1).astype(np.float32)
        none = np.full(seen, 0.5, np.float32)
        return replace(record, probe=Probe(none, curve, none, np.full(seen, -1, np.int32)))

    greedy = {"temperature": 0.0}
    with Recorder(path, "mine", [1], budget=BUDGET, read=read, settings=greedy) as record:
        for _ in range(12):
            lists = np.stack([rng.permutation(WORDS)[:LISTED] for _ in range(DEPTHS)])
            tokens, parents = grown(rng, lists, chain)
            walked = [0]
            below = [row for row, parent in enumerate(parents) if parent == 0]
            while below and rng.random() < 0.7:
                walked.append(int(rng.choice(below)))
                below = [row for row, parent in enumerate(parents) if parent == walked[-1]]
            taken = {tokens[row] for row in below}
            bonus = next(t for t in rng.permutation(WORDS).tolist() if t not in taken)
            odds = np.log(np.tile(np.linspace(0.4, 0.05, LISTED), (DEPTHS, 1)))
            record.round(
                [root, *tokens[1:]], parents, walked, bonus,
                lists=(lists, odds) if listed else None,
                more=probe if probed else lambda made: made,
            )  # fmt: skip
            root = bonus
    return read_trace(path), raw_numbers.raw_rounds(path)


def why(r: dict) -> str:
    """Why a round's walk ended, by its raw line."""
    if len(r["nodes"]["depth"]) == 1:
        return "no_draft"
    if "candidates" not in r:
        return "unknown"
    lists, depth = r["candidates"]["token"], len(r["path"]) - 1
    if depth >= len(lists):
        return "beyond"
    if r["bonus"] not in lists[depth]:
        return "outside"
    place = lists[depth].index(r["bonus"]) + 1
    if place > (r["candidates"].get("read") or place):
        return "not_read"
    return "pruned" if len(r["nodes"]["depth"]) > BUDGET else "stopped"


@settings(max_examples=amount(12, 25), deadline=None)
@given(
    st.integers(0, 10**6), st.booleans(), st.booleans(), st.sampled_from([None, 1, 3]),
    st.booleans(),
)  # fmt: skip
def test_made_up_traces_get_no_cause_that_was_not_recorded(seed, chain, listed, read, probed):
    with TemporaryDirectory() as folder:
        trace, raw = recorded(Path(folder) / "a.jsonl", seed, chain, listed, read, probed)
    tables = Tables.of({"A": trace})
    assert tables.rounds["stop"].tolist() == [why(r) for r in raw]
    found = findings(tables, by="run")
    claims = check(found).get("A", {})
    ended, said = Counter(map(why, raw)), {each.about: each for each in found}
    assert all(str(count) in said["ends"].words for count in ended.values())
    drafted = [r for r in raw if len(r["nodes"]["depth"]) > 1]
    deepest = sum(len(r["path"]) - 1 == max(r["nodes"]["depth"]) for r in drafted)
    if not listed:
        assert Cause.OUTSIDE not in ended and Remedy.LISTS in claims
        assert set(claims.values()) <= {Claim.UNKNOWN, Claim.NOT} or ended["no_draft"]
        if len(drafted) >= FEW_SEEN:
            assert claims[Remedy.DEEPER] is (Claim.UNKNOWN if deepest else Claim.NOT)
            assert f"{deepest} of {len(drafted)} walks" in said["depth"].words
    elif len(drafted) >= FEW_SEEN:
        assert claims[Remedy.DEEPER] is (Claim.COULD if ended["beyond"] else Claim.NOT)


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("chain", [True, False])
def test_the_best_token_is_right_where_the_raw_lines_say_so(tmp_path, listed, chain):
    """Of all observed places: a token that is neither the best listed nor the only child is wrong.
    Where a place has no list, and no child or several without q, its depth has no figure."""
    trace, raw = recorded(tmp_path / "a.jsonl", 5, chain, listed, None, False)
    right: dict[int, list[bool | None]] = defaultdict(list)
    for r in raw:
        nodes, walked = r["nodes"], r["path"]
        lists = r.get("candidates", {}).get("token")
        last = len(lists) if lists else max(nodes["depth"])
        for depth in range(1, min(len(walked), last) + 1):
            parent = walked[depth - 1]
            wanted = nodes["token"][walked[depth]] if depth < len(walked) else r["bonus"]
            children = [row for row, above in enumerate(nodes["parents"]) if above == parent]
            if len(nodes["depth"]) == 1:
                right[depth].append(False)
            elif lists:
                right[depth].append(lists[depth - 1][0] == wanted)
            else:
                best = nodes["token"][children[0]] if len(children) == 1 else None
                right[depth].append(None if best is None else best == wanted)
    found = per_depth(Tables.of(trace)).set_index("depth")
    assert set(found.index) == set(right)
    for depth, places in right.items():
        assert found["told"][depth] == sum(place is not None for place in places)
        if None in places:
            assert np.isnan(found["top1"][depth])
        else:
            assert found["top1"][depth] == pytest.approx(np.mean(places))
