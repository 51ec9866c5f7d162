"""Logs and metrics pages of other engines: real lines by hand, made-up ones by their rounds."""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.engines.rounded import fitted, kept_by
from analysis.engines.served import read_served
from analysis.measures.counts import Counts, Served, summed
from analysis.measures.counts_in_words import sentences
from analysis.numbers import UNKNOWN, number
from app.cli import main
from app.report.counted import PLACES, sheets
from core.errors import UserError
from core.stats import wilson
from tests.helpers.engine_logs import DECODE, LOGS, SUMS, TASK, VLLM
from tests.helpers.sentences import is_one_sentence

# records, rounds, drafted, accepted, τ and the rounds that accepted each place, counted by hand
TOLD = {
    "vLLM, 2026": (1, 44, 308, 256, 1 + 256 / 44, (44, 44, 44, 44, 35, 27, 18)),
    "vLLM, 2025": (1, 129, 387, 150, 1 + 150 / 129, (70, 46, 34)),
    "a bare curve": (1, None, None, None, 2.0, (None, None, None)),
    "vLLM's page": (1, 1000, 3000, 1450, 2.45, (750, 450, 250)),
    "SGLang": (1, None, None, None, 2.4, ()),
    "SGLang's page": (1, None, None, None, 2.4, ()),
    "llama.cpp": (1, 13, 38, 24, 1 + 24 / 13, (12, 8, 4)),
    "llama.cpp, early 2026": (1, 97, 388, 257, 1 + 257 / 97, (78, 68, 61, 50)),
    "llama.cpp, 2025": (1, None, 297, 171, None, ()),
    # the n-gram drafter lists two of its places: deeper ones of both together are not known
    "llama.cpp's sums": (2, 542, 2961, 1501, 1 + 1501 / 542, (28 + 390, 25 + 269)),
    "TensorRT-LLM": (2, 5, 10, 5, 2.0, ()),
    "TensorRT-LLM's page": (1, 60, 160, 66, 1 + 66 / 60, (48, 18, 0)),
    "TensorRT-LLM's totals": (1, None, 20, 15, None, ()),
    "TensorRT-LLM, all at place 0": (1, None, 12, 5, None, ()),
    "llama.cpp's page": (1, 10, 30, 12, 2.2, ()),
}


def read(folder, text: str, encoding: str = "utf-8") -> Counts:
    path = folder / "served.log"
    path.write_text(text, encoding, "surrogatepass", newline="")
    return read_served(path)


@pytest.mark.parametrize("name", LOGS)
def test_every_form_alone_and_among_other_lines(name, tmp_path):
    alone = read(tmp_path, LOGS[name])
    records, rounds, drafted, accepted, tau, places = TOLD[name]
    assert (alone.records, alone.rounds, alone.drafted) == (records, rounds, drafted)
    assert (alone.accepted, alone.fits) == (accepted, None)
    assert alone.tau == (tau if tau is None else pytest.approx(tau))
    assert tuple(d.accepted for d in alone.by_depth) == places
    around = ["# HELP x y", "", "café \x1b[31m \udcff 1.00", "z" * 200_000, "10 %\r90 %", "INFO hi"]
    among = (*around, *(line for each in LOGS[name].split("\n") for line in (each, "-")))
    for mark, encoding in (("", "utf-8"), ("\ufeff", "utf-8"), ("\ufeff", "utf-16-le"),
                           ("\ufeff", "utf-16-be")):  # fmt: skip
        first = read(tmp_path, f"{mark}{LOGS[name]}\n", encoding)
        mixed = read(tmp_path, mark + "\n".join(among), encoding)
        for each in (first, mixed):
            assert (each.by_depth, each.tau, each.records) == (alone.by_depth, alone.tau, records)
            assert not any("no line break" in note for note in each.notes)
        if alone.kind == "log line":
            assert f"of {sum(map(bool, among))} lines read" in mixed.notes[0]


def test_the_bare_curve_of_shares(tmp_path):
    """Of 0.6, 0.3, 0.1: 0.3 ÷ 0.6 and 0.1 ÷ 0.3; nothing has an interval."""
    found = read(tmp_path, LOGS["a bare curve"])
    assert [d.conditional for d in found.by_depth] == pytest.approx([0.6, 0.5, 1 / 3])
    assert [d.tau for d in found.by_depth] == pytest.approx([1.6, 1.9, 2.0])
    assert all(d.low is d.high is d.tested is None for d in found.by_depth)
    rounded = read(tmp_path, f"{VLLM}Mean acceptance length: 2.00, {LOGS['a bare curve']}5")
    assert rounded.tau == pytest.approx(2.0005)  # three digits of each place tell more
    said = " ".join(sentences(found))
    assert "0.60, 0.50, 0.33" in said and "how many drafts is not told" in said
    assert "40.0% of the drafts end at place 1" in said and "whole" not in said
    assert "5.3% longer" in said and "at least what is shown" in said  # 0.1 ÷ 1.9


# ── made-up drafts: what is read is what was drafted ─────────────────────────────────────────────

DRAFT = st.integers(1, 5).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
INTERVALS = st.lists(st.lists(DRAFT, min_size=1, max_size=300), min_size=1, max_size=3)


def kept(drafts, place):
    return sum(accepted >= place for accepted, _ in drafts)


def as_vllm(drafts) -> str:
    accepted, drafted = (sum(each) for each in zip(*drafts, strict=True))
    rates = ", ".join(f"{kept(drafts, n) / len(drafts):.3f}" for n in range(1, 6))
    return (
        f"{VLLM}Mean acceptance length: {1 + accepted / len(drafts):.2f}, Accepted throughput: "
        f"1.00 tokens/s, Drafted throughput: 2.00 tokens/s, Accepted: {accepted} tokens, Drafted: "
        f"{drafted} tokens, Per-position acceptance rate: {rates}, Avg Draft acceptance rate: "
        f"{100 * accepted / drafted:.1f}%"
    )


def as_llama(drafts) -> str:
    accepted, drafted = (sum(each) for each in zip(*drafts, strict=True))
    rates = ", ".join(f"{kept(drafts, n) / len(drafts):.3f}" for n in range(1, 6))
    return (
        f"{TASK}draft acceptance = {accepted / drafted:.5f} ({accepted:5} accepted / {drafted:5} "
        f"generated), mean len = {1 + accepted / len(drafts):5.2f}\n"
        f"{TASK}     acc per pos = ({rates})"
    )


@pytest.mark.parametrize("written", [as_vllm, as_llama])
@given(intervals=INTERVALS)
def test_rounded_lines_give_back_the_rounds_that_they_were_made_of(
    tmp_path_factory, written, intervals
):
    found = read(tmp_path_factory.getbasetemp(), "\n".join(map(written, intervals)))
    drafts = [draft for drafts in intervals for draft in drafts]
    assert found.records == len(intervals)
    assert found.accepted == sum(a for a, _ in drafts)
    assert found.drafted == sum(d for _, d in drafts)
    if found.fits:
        assert found.fits[0] <= len(drafts) <= found.fits[1]
        return
    assert found.rounds == len(drafts)
    assert found.tau == pytest.approx(1 + found.accepted / len(drafts))
    for each in found.by_depth:
        assert each.accepted == kept(drafts, each.depth)
        assert each.marginal == pytest.approx(each.accepted / len(drafts))
        came = sum(a >= each.depth - 1 and d >= each.depth for a, d in drafts)
        assert each.conditional <= (each.accepted / came if came else 1.0) + 1e-9
    assert (found.full is True) == all(d == 5 for _, d in drafts)


PERCENT = re.compile(
    r"([\d.]+)% (?:of (?:the|\d+) drafts )?(end at place \d|are accepted whole|longer)"
)


@given(drafts=st.lists(st.tuples(st.integers(0, 4), st.just(4)), min_size=30, max_size=300))
def test_full_drafts_say_where_they_end(tmp_path_factory, drafts):
    text = "\n".join(
        f'vllm:spec_decode_num_{name}{{position="{at}"}} {count}'
        for name, at, count in (
            ("drafts_total", "", len(drafts)),
            ("draft_tokens_total", "", 4 * len(drafts)),
            ("accepted_tokens_total", "", sum(a for a, _ in drafts)),
            *(("accepted_tokens_per_pos_total", n, kept(drafts, n + 1)) for n in range(4)),
        )
    )
    found = read(tmp_path_factory.getbasetemp(), text)
    ends = [sum(a == n for a, _ in drafts) for n in range(5)]
    said = " ".join(sentences(found))
    shares = {words: float(number) for number, words in PERCENT.findall(said)}
    at = [n for n in range(4) if f"end at place {n + 1}" in shares]
    assert [ends[n] for n in at] == [max(ends[:4])][: max(ends[:4])]
    for n in at:
        share = shares.pop(f"end at place {n + 1}")
        assert share == pytest.approx(100 * ends[n] / len(drafts), abs=0.051)
    assert ("None is accepted whole" in said) == (ends[4] == 0)
    if ends[4]:
        whole = shares.pop("are accepted whole")
        assert whole == pytest.approx(100 * ends[4] / len(drafts), abs=0.051)
        before = 1 + sum(kept(drafts, n) for n in (1, 2, 3)) / len(drafts)
        paid = 100 * ends[4] / len(drafts) / before
        assert shares.pop("longer") == pytest.approx(paid, abs=0.051)
    assert not shares


def test_so_few_drafts_conclude_nothing():
    few = summed([Served("x", rounds=4, drafted=12, accepted=6, histogram=(1, 1, 1, 1))], "page")
    said = " ".join(sentences(few))
    assert "Only 4 drafts: too few rounds" in said
    assert not re.search("end at place|it pays|accepted whole", said)


def test_a_long_interval_has_no_single_count(tmp_path):
    """Of 4,437 drafts 2 digits leave several: those of full drafts are used, and that is said; of
    shorter drafts those that have the mean that the engine printed."""
    full = [(n % 4, 3) for n in range(4437)]
    found = read(tmp_path, as_vllm(full).replace(", 0.000, 0.000", ""))
    assert found.rounds == 4437 and 4437 < found.fits[1] < 4477 and found.full is None
    assert "rounded figures fit 4437 to" in " ".join(sentences(found))
    line = as_vllm([*full, *((n % 2, 1) for n in range(2000))])
    found = read(tmp_path, line)
    assert found.fits[0] < 6437 < found.fits[1] and found.rounds == sum(found.fits) // 2
    assert f"length: {found.tau:.2f}," in line
    rare = read(
        tmp_path, f"{TASK}draft acceptance = 0.01 (20 accepted / 4000 gen), mean len = 1.01"
    )
    assert rare.rounds == rare.fits[0] == 1333  # 20 ÷ 0.015: that wide, none is nearest


@pytest.mark.parametrize(("counts", "mean", "rates", "listed", "rounds"), [
    ((0, 10), None, (0.0, 0.0, 0.0), True, (4, 10)),  # a draft has three places at most
    ((1000, 4000), 2.0, (), False, (996, 1005)),  # 1000 ÷ 1.005 and 1000 ÷ 0.995
    ((20, 40), 3.0, (1.0,), False, (10, 10)),  # places that are not listed accept the rest
    ((1, 10), None, (0.143,), False, (7, 7)),  # of no other count it is a share
    ((1, 3000), None, (0.001, 0.0, 0.0), True, (1000, 3000)),  # the sum may be none
])  # fmt: skip
def test_the_fewest_and_the_most_rounds_by_hand(counts, mean, rates, listed, rounds):
    assert fitted(*counts, mean, rates, listed) == rounds


def test_the_sum_of_all_places_tells_what_rounding_leaves_open(tmp_path):
    """Half of 4,000 may be 1,998 to 2,002, and a quarter 998 to 1,002: together they are 3,004."""
    assert kept_by((0.5, 0.25), 4000, (4000, 4000), 3004) == ((2002, 1002), ())
    assert kept_by((0.5, 0.0), 4000, (4000, 4000), 1999) == ((1999, 0), (1, 1))
    assert kept_by((0.5,), 100, (90, 110), None) == ((50,), (5,))
    counts = f"{TASK}draft acceptance = 0.25 (3004 accepted / 12000 generated), mean len = 1.75"
    (one,) = read(tmp_path, f"{counts}\n{TASK} acc per pos = (0.500)").by_depth
    assert one.accepted - one.off[0] <= 2000 <= one.accepted + one.off[0]
    first = read(tmp_path, SUMS.format("ngram-mod", 4000, 80_000, 3004, "0.500, 0.250"))
    assert [(d.accepted, d.off[0]) for d in first.by_depth] == [(2000, 2), (1000, 2)]


def test_lines_of_two_requests_may_take_turns(tmp_path):
    """As of two slots: places are of the request's own counts, which stand further up."""
    one, places = LOGS["llama.cpp"].splitlines()
    lines = (one, one.replace("task 7", "task 8"), places, places.replace("task 7", "task 8"))
    found = read(tmp_path, "\n".join(lines) + "\n")
    assert [d.accepted for d in found.by_depth] == [24, 16, 8]
    assert found.notes == ("2 log lines of 4 lines read.",)
    said = " ".join(sentences(found))
    assert "By log line" not in said  # both have one τ


@pytest.mark.parametrize("name", ["llama.cpp's page", "SGLang"])
def test_a_last_line_that_may_be_cut_off_is_told(name, tmp_path):
    """A page cut after "accepted_tokens_total 1" told τ 1.10 in place of 2.20."""
    whole = LOGS[name]
    for text, told in ((whole, True), (whole + "\n", False), (whole + "\nother", False)):
        notes = " ".join(read(tmp_path, text).notes)
        assert ("The last line has no line break" in notes) == told


def test_what_the_last_place_adds_is_no_threshold_where_some_drafts_had_no_such_place(tmp_path):
    short = f"{VLLM}Mean acceptance length: 1.50, Accepted: 50 tokens, Drafted: 100 tokens, "
    short += "Per-position acceptance rate: 0.500"
    said = " ".join(sentences(read(tmp_path, f"{LOGS['vLLM, 2025']}\n{short}")))
    assert "of which some had no such place" in said and "it pays while" not in said


def test_places_whose_counts_were_cut_off_are_of_no_other_task(tmp_path):
    whole = read(tmp_path, LOGS["llama.cpp"])
    counts, places = LOGS["llama.cpp"].split("\n")
    other = places.replace("task ", "task 9")
    after = read(tmp_path, f"{counts}\n{other}")
    assert (after.records, after.accepted, after.by_depth) == (1, whole.accepted, ())
    before = read(tmp_path, f"{other}\n{LOGS['llama.cpp']}")
    assert (before.records, before.by_depth) == (1, whole.by_depth)
    assert "line 1: the line with its counts is missing" in before.notes[1]
    again = read(tmp_path, f"{LOGS['llama.cpp']}\n{places}")
    assert "line 3: the line with its counts is missing" in again.notes[1]
    none = read(tmp_path, f"{counts}\n{TASK} acc per pos = ()")
    assert (none.accepted, none.by_depth) == (whole.accepted, ())
    first = read(tmp_path, LOGS["llama.cpp"].replace(", 0.308", ""))
    assert (first.rounds, [d.accepted for d in first.by_depth]) == (13, [12, 8])


@pytest.mark.parametrize("seed", range(12))
def test_a_count_of_rounded_shares_is_shown_with_what_it_may_be_off(tmp_path, seed):
    """Three digits of more than a thousand drafts leave several counts: the true one is among
    them, and its interval lies within the one that is shown."""
    chance = random.Random(seed)
    drafts = [(min(chance.randrange(9), 4), 4) for _ in range(chance.randint(1200, 9000))]
    found = read(tmp_path, as_vllm(drafts).replace(", 0.000, Avg", ", Avg"))
    rows = next(sheet for sheet in sheets(found) if sheet.heads == PLACES).rows
    assert any(d.off[0] for d in found.by_depth)
    for d, row in zip(found.by_depth, rows, strict=True):
        true, tested = kept(drafts, d.depth), kept(drafts, d.depth - 1)
        assert abs(d.accepted - true) <= d.off[0]
        assert row[2] == (f"{d.accepted} ± {d.off[0]}" if d.off[0] else str(d.accepted))
        if d.depth > 1:
            low, high = wilson(true, tested)
            assert abs(d.tested - tested) <= d.off[1]
            assert d.low <= low + 1e-12 and (d.high is None or d.high >= high - 1e-12)


def test_how_many_drafts_came_to_a_place_is_a_most_where_their_lengths_are_untold():
    whole = Served("vLLM", rounds=1204, drafted=2408, accepted=900, places=(600, 300))
    for told, tested in (
        (whole, ["1204", "600"]),
        (replace(whole, drafted=None), ["1204", "≤ 600"]),
        (replace(whole, drafted=None, off=(2, 3)), ["1204", "≤ 602"]),
        (replace(whole, engine="LM Studio", drafted=None), ["≤ 1204", "≤ 600"]),
        (replace(whole, drafted=2000), ["1204", UNKNOWN]),
    ):
        counts = summed([told], "log line")
        rows = next(t for t in sheets(counts) if t.heads == PLACES).rows
        assert [row[1] for row in rows] == tested
        for row, depth in zip(rows, counts.by_depth, strict=True):
            bound = row[1].startswith("≤") or row[1] == UNKNOWN  # then only the least is known
            assert row[3].startswith("≥ ") == bound and (depth.high is None) == bound
            assert row[4].startswith("≥ ") == (row[1].startswith("≤"))
            assert row[5] == number(depth.marginal, 3)


def test_a_share_that_was_rounded_to_none_is_not_called_none(tmp_path):
    """One of 3,000 drafts was accepted whole; the log says 0.000."""
    drafts = [(2, 2), *((1, 2) for _ in range(1500)), *((0, 2) for _ in range(1499))]
    said = " ".join(
        sentences(read(tmp_path, re.sub(r"(, 0.000){3}, Avg", ", Avg", as_vllm(drafts))))
    )
    bare = " ".join(sentences(read(tmp_path, "Per-position acceptance rate: 0.500, 0.000")))
    for words in (said, bare):
        assert "never accepted" not in words and "None is accepted whole" not in words


# ── what is refused, and what is left out ────────────────────────────────────────────────────────

REFUSED = {
    "is empty": "",
    "holds no counts in a form": "hello",
    "vLLM before its V1": "Speculative metrics: Draft acceptance rate: 0.642, System efficiency: 1",
    "a diffusion model": "DiffusionDecoding metrics: Committed: 3 tokens",
    "vLLM's log without a line": "Engine 000: Avg generation throughput: 1.0 tokens/s, Running: 1",
    "SGLang's log without": f"{DECODE}gen throughput (token/s): 8.44",
    "llama.cpp's log without": "slot print_timing: id 0 | task 0 |  eval time =  161.86 ms",
    "vLLM's metrics without": "# HELP x y\nvllm:num_requests_running 1.0",
    "a metrics page of another": "# TYPE node_load1 gauge\nnode_load1 0.1",
    "bench serve": "Per-position acceptance (%):\n  Position 0:   60.00",
    "a trace": '{"format":"draftscope-trace"}\n{}',
    "a web page": "<!DOCTYPE html>\n<title>404</title>",
    "counts of vLLM and SGLang": LOGS["vLLM, 2025"] + "\n" + LOGS["SGLang"],
    "counts 2 models": LOGS["vLLM's page"].replace('"m"', '"other"', 1),
    "without a gap": LOGS["vLLM's page"].replace('position="1"', 'position="5"'),
    "more accepted tokens than": LOGS["vLLM's page"]
    .replace(" 150.0", " 999.0")
    .replace(" 450.0", " 9999.0"),
    "positions count more accepted": LOGS["vLLM's page"].replace(" 870.0", " 100.0"),
    "more accepted tokens than there": LOGS["vLLM's page"]
    .replace(" 450.0", " 800.0")
    .replace(" 870.0", " 1300.0"),
    "accepted than drafted": LOGS["llama.cpp's page"].replace("total 12", "total 99"),
    "count of tokens is not a number from 0": "draft acceptance = 1 ( -1 accepted / 6 generated)",
    "not a whole number": LOGS["vLLM's page"].replace(" 600.0", " 600.5"),
    "lacks spec_decode_num_drafts": 'vllm:spec_decode_num_draft_tokens_total{engine="0"} 3.0',
    "no draft was verified yet": "vllm:spec_decode_num_drafts_total 0.0",
    "no draft was verified": SUMS.format("ngram-mod", 0, 0, 0, ""),
    "contradict each other": LOGS["vLLM, 2025"].replace("2.16", "2.90"),
    "figures contradict": LOGS["vLLM, 2025"].replace("2.16", "0.90"),
    "not 1 \\+ its shares": f"{VLLM}Mean acceptance length: 2.01, {LOGS['a bare curve']}",
    "shares by place rise": "Per-position acceptance rate: 0.100, 0.300",
    "is not a number from 0 to 1": "Per-position acceptance rate: 1.600, 0.300",
    "more tokens are accepted": "draft acceptance rate = 1.2 (  7 accepted /   6 generated)",
    "or drafts made": SUMS.format("ngram-mod", 700, 600, 300, "0.400"),
    "accept len is below 1": LOGS["SGLang"].replace("2.40", "0.40"),
    "ends before its counts": f"{VLLM}Mean accep",
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_is_not_counts_is_one_sentence_that_says_what_it_seems(said, tmp_path, capsys):
    with pytest.raises(UserError):
        read(tmp_path, REFUSED[said])
    assert main(["trace", "import", str(tmp_path / "served.log")]) == 2
    complaint = capsys.readouterr().err
    assert is_one_sentence(complaint) and re.search(said, complaint)


@pytest.mark.parametrize("bad", ["nan", "inf", "-1", "1e999", "9" * 400, "0x1", "1_0", "", "\x1b"])
def test_a_line_that_cannot_be_read_is_left_out_and_named(bad, tmp_path):
    good = LOGS["vLLM, 2025"].split("\n")[0]
    for figure in ("2.16", "150", "387", "0.543"):
        found = read(tmp_path, f"{good}\n\n{good.replace(figure, bad, 1)}")
        if found.records == 1:
            assert "1 line left out" in found.notes[1] and "line 3" in found.notes[1]
            assert found.rounds == 129
        else:  # without this figure the line still has its counts, or only shares
            assert bad != "-1"
            assert not any(math.isnan(d.marginal) for d in found.by_depth)


def test_what_stands_in_a_page_twice_is_its_last_value(tmp_path):
    page = LOGS["vLLM's page"]
    before = page.replace("00.0", "0.0").replace("50.0", "5.0")
    before = re.sub(r'(engine="\d"),(model_name="m")', r"\2,\1", before)
    before += '\nvllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.7645e+09'
    assert read(tmp_path, f"{before}\n{page}").by_depth == read(tmp_path, page).by_depth
    log = LOGS["vLLM, 2025"]  # another form of the same counts
    assert read(tmp_path, f"{page}\n{log}").by_depth == read(tmp_path, log).by_depth


def test_a_gauge_is_its_sample_s_value_and_none_while_nothing_was_drafted(tmp_path):
    page = LOGS["SGLang's page"]
    text = f"{page} 1764500000000\n{page.replace('2.4', '0.0')}\n"
    assert (found := read(tmp_path, text)).records == 1 and found.tau == 2.4
    sums = LOGS["llama.cpp's sums"]
    idle = read(tmp_path, f"{sums}\n{SUMS.format('idle', 0, 0, 0, '')}")
    assert idle.by_depth == read(tmp_path, sums).by_depth


@pytest.mark.parametrize(
    ("most", "name", "said"),
    [
        ("lines.MOST_LINES", "vLLM, 2025", "more than 1 lines of counts"),
        ("lines.MOST_BYTES", "vLLM, 2025", "larger than 0 MB"),
        ("pages.MAX_PLACES", "vLLM's page", "do not count from 0 without a gap"),
        ("rounded.MAX_PLACES", "a bare curve", "rise, or are too many"),
    ],
)
def test_an_endless_log_is_one_sentence(most, name, said, tmp_path, monkeypatch):
    monkeypatch.setattr(f"analysis.engines.{most}", 1)
    with pytest.raises(UserError, match=said):
        read(tmp_path, LOGS[name])


def test_the_command(tmp_path, capsys):
    path = tmp_path / "vllm.log"
    path.write_text(LOGS["vLLM, 2025"])
    assert main(["trace", "import", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "[0.46, 0.63]" in shown and "45.7% of 129 drafts end at place 1" in shown
    assert main(["trace", "import", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rounds"] == 129 and found["by_depth"][1]["tested"] == 70
    assert found["sentences"][0] == "1 log line of 2 lines read."
