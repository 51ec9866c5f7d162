"""The lossless check finds what it must, allows ties only where stated, and says where."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analysis.experiments import audit, distribution
from analysis.experiments.audit import Margin, Mismatch, Plain, first_difference, tie_bound
from analysis.experiments.bench import (
    Timing,
    Workload,
    _FirstToken,
    _schedule,
    rows,
    with_baselines,
)
from analysis.experiments.roofline import AttentionShape
from analysis.experiments.variants import Variant
from core.decoding.decode import Decoder
from core.decoding.engine import Engine
from core.decoding.request import RunRequest, Settings
from core.drafting.builders import SampledChain
from core.errors import UserError
from core.rounds.draft import Draft
from core.rounds.round import Sampling
from core.stats import goodness_of_fit
from core.verification import rules
from core.verification.rules import BlockVerification, SpeculativeSampling, TargetTokens
from core.verification.sampling import TargetSampler
from core.verification.walk import walk
from tests.helpers import toys
from tests.helpers.toys_on_disk import save_toys


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    target, drafter = save_toys(tmp_path_factory.mktemp("toy"))
    return SimpleNamespace(target=target, drafter=drafter)


@pytest.fixture(scope="module")
def engine(folders):
    return Engine(str(folders.target), "cpu", folders.drafter)


def requests():
    base = RunRequest("hello", max_new_tokens=40)
    return [
        replace(base, method=method, budget=budget, temperature=temperature)
        for method in ("dflash", "ddtree")
        for budget in (1, 7, 64)
        for temperature in (0.0, 1.0)
    ]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("option", "keeps"), [("classic", False), ("block", False), ("", True)])
def test_which_text_must_be_plain_decodings(option, keeps, temperature):
    """Rules that keep the distribution only are judged by their text where nothing is drawn."""
    options = ((option, True),) if option else ()
    asked = RunRequest("x", "dflash+sampled-chain", temperature=temperature, options=options)
    assert asked.keeps_text == (keeps or not temperature)


def test_methods_are_lossless_and_plain_runs_once_per_text(engine, monkeypatch):
    ran = []
    monkeypatch.setattr(audit, "plain", lambda e, r: ran.append(r) or _plain(e, r))
    findings = list(audit.audit(engine, requests()))
    assert all(f.difference is None and f.lossless and f.tokens == 40 for f in findings)
    assert len(ran) == 2  # greedy and sampled


_plain = audit.plain


def test_every_choice_but_prefill_s_has_a_margin(engine):
    for temperature in (0.0, 1.0):
        known = audit.plain(engine, RunRequest("hello", "ar", 1, 12, temperature=temperature))
        assert len(known.tokens) == 12 and len(known.margins) == 11
        assert all(m.gap >= 0 and m.bound == 0 for m in known.margins)
        assert math.isnan(known.margin(0).gap)


def test_a_wrong_token_is_found(engine, monkeypatch):
    """A verifier that takes another token somewhere must not pass."""

    def dishonest(draft, choose):
        return walk(draft, lambda row: (choose(row) + 1) % 48 if draft.nodes else choose(row))

    monkeypatch.setattr(rules, "walk", dishonest)
    (finding,) = audit.audit(engine, [RunRequest("hello", "ddtree", 8, 20)])
    assert finding.difference is not None and finding.difference.index == 1
    assert not finding.lossless and finding.difference.margin.gap > 0


def test_first_difference_and_ended_texts():
    expected = Plain((1, 2, 3), (Margin(0.5, 0.0), Margin(0.1, 0.25)))
    assert first_difference(expected, [1, 2, 3]) is None
    assert first_difference(expected, [1, 2, 9]) == Mismatch(2, 3, 9, Margin(0.1, 0.25))
    assert first_difference(expected, [1, 2, 9]).tied  # type: ignore[union-attr]
    short = first_difference(expected, [1])
    assert short is not None and (short.plain, short.method) == (2, None) and not short.tied


def test_no_tie_is_allowed_in_float32_nor_without_a_gap():
    assert tie_bound(17.0, torch.float32) == tie_bound(17.0, torch.float64) == 0
    # 17 lies in [16, 32): one unit in the last of bfloat16's 8 binary places is 16 / 128
    assert tie_bound(17.0, torch.bfloat16) == 4 * 16 / 128
    assert tie_bound(17.0, torch.float16) == 4 * 16 / 1024
    assert not Mismatch(3, 1, 2, Margin(0.0, 0.0)).tied
    assert not Mismatch(0, 1, 2, Margin(math.nan, 0.5)).tied


def scene(logits, sampling):
    rule = TargetTokens(sampling)
    return SimpleNamespace(logits=logits, rule=rule, position=9, draft=Draft.root_only(0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_bound_is_of_the_best_logits_size_whatever_else_stands_there(dtype):
    info = torch.finfo(dtype)
    assert tie_bound(-17.0, dtype) == tie_bound(17.0, dtype) > 0
    assert 0 < tie_bound(0.0, dtype) <= 4 * info.tiny
    assert tie_bound(-math.inf, dtype) == tie_bound(math.nan, dtype) == 0
    for rest in (-math.inf, info.min, -500.0):  # a cold or a padded vocabulary
        for best in (3.0, 0.0, -3.0):
            logits = torch.full((1, 30), rest, dtype=dtype)
            logits[0, 4], logits[0, 9] = best, best - 4
            found = audit.margin(scene(logits, Sampling()))
            assert found == Margin(4.0, tie_bound(best, dtype))
            assert not Mismatch(3, 4, 9, found).tied


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.7, seed=3)])
def test_the_margin_is_that_of_the_scores_the_rule_compares(sampling):
    logits = torch.randn(1, 30, generator=torch.Generator().manual_seed(1)) * 5
    found, sampler = audit.margin(scene(logits, sampling)), TargetSampler(sampling)
    best = int(sampler.choose(logits, [10])[0])
    step = found.gap * (sampling.temperature or 1.0)
    lowered = logits.clone()
    lowered[0, best] -= step * 0.999
    assert int(sampler.choose(lowered, [10])[0]) == best
    lowered[0, best] -= step * 0.002 + 1e-5
    assert int(sampler.choose(lowered, [10])[0]) != best


# ── rules that keep the distribution only ────────────────────────────────────────────────────────


class NoResidual(SpeculativeSampling):
    """Wrong: a refused token's successor is drawn from p, not from norm(max(0, p − q))."""

    def _try(self, children, tokens, p, q, after):
        return super()._try(children, tokens, p, q, after)[0], p


class WrongBehindTheFirst(SpeculativeSampling):
    """Wrong from the second token on: every drafted one is accepted."""

    def _try(self, children, tokens, p, q, after):
        if children and children[0] > 1:
            return children[0], p
        return super()._try(children, tokens, p, q, after)


@pytest.mark.parametrize(
    "rule", [SpeculativeSampling, BlockVerification, NoResidual, WrongBehindTheFirst]
)
def test_a_rule_that_is_not_lossless_in_distribution_is_caught(rule):
    drafter = toys.NoisyOracle((*toys.PROMPT, *toys.plain(30)))
    method = Decoder("sampled", drafter, SampledChain(block=rule is BlockVerification), rule)
    settings = Settings(3, sampling=Sampling(temperature=0.5))
    target = toys.target(layers=drafter.layers)
    found = distribution.check_rounds(target, method, list(toys.PROMPT), settings, 1000)
    assert found.draws > 1300 and found.contexts > 1 and found.detectable < 0.15
    assert found.refuted == (rule in (NoResidual, WrongBehindTheFirst))
    said = distribution.sentence(found)
    assert f"{found.detectable:.2f} would be found with 95% power" in said
    assert ("do not follow" in said) == found.refuted


OWN = """
from core.drafting.builders import SampledChain
from core.methods.method import Method

RULE = "core.verification.rules:SpeculativeSampling"
METHOD = Method("Sampled", "dflash", SampledChain(), 4, rule=RULE)
"""


def test_the_distribution_is_tested_where_the_text_may_be_another(engine, tmp_path):
    (tmp_path / "sampled.py").write_text(OWN)
    request = RunRequest("hello", str(tmp_path / "sampled.py"), max_new_tokens=12, temperature=1.0)
    hot, greedy = audit.audit(engine, [request, replace(request, temperature=0.0)], seeds=60)
    assert hot.distribution is not None and hot.difference is None
    assert hot.lossless and hot.rounds == 60 and hot.tokens == hot.distribution.draws >= 60
    assert greedy.distribution is None and greedy.difference is None and greedy.tokens == 12


@pytest.mark.embedded
@pytest.mark.thorough
def test_speculative_sampling_on_the_embedded_model(tmp_path):
    """Any deviation of 0.2 in total variation would be found with 95 % power."""
    (tmp_path / "sampled.py").write_text(OWN)
    prompt = "Name three fruits and say which one you like best."
    request = RunRequest(prompt, str(tmp_path / "sampled.py"), 2, temperature=1.0)
    (finding,) = audit.audit(Engine(), [request], seeds=250)
    assert finding.lossless and finding.distribution is not None
    assert finding.distribution.detectable < 0.2


def test_counts_that_cannot_be_are_refuted_and_p_values_are_uniform():
    p = np.array([0.5, 0.3, 0.2, 0.0])
    assert goodness_of_fit([np.array([50, 30, 19, 1])], [p]).refuted
    rng = np.random.default_rng(0)
    found = [goodness_of_fit([rng.multinomial(40, p)], [p], simulations=400) for _ in range(200)]
    assert 0.4 < np.mean([f.p_value < 0.5 for f in found]) < 0.65


def test_what_is_said_to_be_detectable_is_detected():
    p = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
    known = goodness_of_fit([np.round(400 * p).astype(int)], [p])
    off, rng = known.detectable, np.random.default_rng(1)
    other = p + np.array([off / 2, -off / 2, off / 2, -off / 2, 0])
    found = [
        goodness_of_fit([rng.multinomial(400, other)], [p], simulations=4000) for _ in range(40)
    ]
    assert np.mean([f.refuted for f in found]) > 0.8 and known.detectable < 0.2


# ── the commands ─────────────────────────────────────────────────────────────────────────────────


def main(words):
    from app import cli

    return cli.main(words)


def options(folders, *more):
    return [*more, "--model", str(folders.target), "--drafter", str(folders.drafter)]


def test_audit_command_ends_0_when_lossless(capsys, folders):
    words = ["audit", "ddtree", "--prompt", "hi", "--max-new-tokens", "20", "--budget", "3", "20"]
    assert main(options(folders, *words)) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 5 and "lossless: 4 comparisons, 80 tokens, 0 " in out
    assert main(options(folders, *words, "--json")) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [x["temperature"] for x in lines] == [0, 0, 1, 1] and all(x["same"] for x in lines)


def test_audit_runs_once_what_no_budget_decides(capsys, folders, tmp_path):
    own = tmp_path / "own.py"
    own.write_text(
        'from core.methods.method import Method\nMETHOD = Method("", "dflash", "chain", 8)\n'
    )
    for name, method in (("dflash", "dflash"), ("own", str(own))):
        words = ["audit", method, "--prompt", "hi", "--max-new-tokens", "8", "--budget", "2", "32"]
        assert main(options(folders, *words, "64", "--temperature", "0")) == 0
        cut, whole, _ = capsys.readouterr().out.splitlines()
        assert cut.startswith(f"{name} B=2  greedy") and whole.startswith(f"{name}      greedy")


def test_audit_command_ends_1_when_a_token_differs(capsys, folders, monkeypatch):
    def wrong(expected, got):
        return Mismatch(3, 1, 2, Margin(2.0, 0.0))

    monkeypatch.setattr(audit, "first_difference", wrong)
    words = ["audit", "dflash", "--prompt", "hi", "--max-new-tokens", "8", "--budget", "4"]
    assert main(options(folders, *words)) == 1
    out = capsys.readouterr().out
    assert "DIFFERENT at new token 3" in out and "gap 2" in out and "2 of 2 differ" in out


def test_bench_command_compares_on_the_same_tokens(capsys, folders):
    words = ["bench", "ddtree", "--prompt", "hi", "--max-new-tokens", "12", "--budget", "4"]
    assert main(options(folders, *words, "--repeats", "1", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    names = [row["name"] for row in found["rows"]]
    assert names == ["plain", "generate", "generate + lookup", "ddtree B=4"]
    assert found["rows"][0]["plain_ratio"] == 1
    assert all(row["same"] == row["prompts"] == 1 for row in found["rows"])
    plain, generate, drafted = found["roofline"]  # lookup does not tell its rounds
    assert (plain["name"], generate["name"], drafted["name"]) == ("plain", "generate", "ddtree B=4")
    assert plain["rows"] == 1 and drafted["rows"] == 5 and drafted["bytes"] > plain["bytes"]
    assert found["machine"]["bandwidth"] > 0 and plain["floor"] == generate["floor"] > 0
    assert plain["reached"] == pytest.approx(plain["floor"] / plain["seconds"], rel=0.01)
    assert all(r["reached"] > 0 and r["whole"] > 0 for r in found["roofline"])
    assert [r["decoding"] is None for r in found["rows"]] == [False, False, True, False]
    assert set(drafted["stages"]) == {"draft", "build", "verify", "commit"}
    spent = sum(stage["seconds"] for stage in drafted["stages"].values())
    assert spent == pytest.approx(drafted["seconds"]) and not generate["stages"]
    assert main(options(folders, *words, "--repeats", "1")) == 0
    out = capsys.readouterr().out
    assert "× generate" in out and "floor ms" in out and "GB/s" in out and "  verify" in out
    assert max(map(len, out.splitlines()[1:])) <= 100


@pytest.mark.parametrize(("family", "runs"), [("qwen3_5_text", False), ("lfm2", True)])
def test_bench_leaves_out_what_a_state_rules_out(family, runs, capsys, tmp_path):
    """transformers' own check says so, and a short convolution passes it."""
    toys.language_model(family).save_pretrained(tmp_path)
    toys.tokenizer().save_pretrained(tmp_path)
    words = ["bench", "pld", "--model", str(tmp_path), "--prompt", "hi hi hi", "--budget", "4"]
    assert main([*words, "--max-new-tokens", "6", "--repeats", "1", "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    names = [row["name"] for row in found["rows"]]
    assert ("generate + lookup" in names) == runs and names[:2] == ["plain", "generate"]
    assert found["left_out"] == ([] if runs else ["generate + lookup"])
    said = [line for line in printed.err.splitlines() if "left out: generate + lookup" in line]
    assert len(said) == (not runs)
    assert all(row["same"] == 1 for row in found["rows"])
    sized = AttentionShape.of(toys.language_model(family).config, torch.float32)
    assert sized.layers == 2  # of four: the others keep no keys


# ── the comparison's arithmetic ──────────────────────────────────────────────────────────────────


def test_the_order_changes_and_everybody_runs_equally_often():
    field = with_baselines(("ar", "ddtree", "dflash"), (8, 16))
    assert [v.name for v in field][3:] == ["ddtree B=8", "ddtree B=16", "dflash"]
    turns = list(_schedule(Workload(("a", "b"), RunRequest(""), repeats=3), field))
    assert len(turns) == 2 * 3 * len(field)
    assert {turns.count((p, v)) for p in (0, 1) for v in field} == {3}
    firsts = [turns[i * len(field)][1] for i in range(6)]
    assert len(set(firsts)) > 2
    with pytest.raises(UserError):
        with_baselines(("magic",), (8,))


def test_ratios_are_medians_over_prompts_and_other_tokens_show():
    plain, fast = Variant("plain", "ar"), Variant("fast", "ddtree", 8)
    timings = [
        Timing(plain, 0, 2.0, (1, 2), (1,)),
        Timing(plain, 0, 2.0, (1, 2), (1,)),
        *[Timing(plain, 1, 4.0, (1, 2), (1,))] * 2,
        Timing(fast, 0, 1.0, (1, 2), (5,)),
        Timing(fast, 0, 1.0, (1, 2), (5,)),
        Timing(fast, 1, 1.0, (1, 9), (1, 1, 2)),
        Timing(fast, 1, 1.0, (1, 2), (1, 1, 2)),  # the same text in one repeat is not enough
    ]
    base, row = rows(timings, (plain, fast), RunRequest(""))
    assert base.identical and base.plain_ratio == 1 and base.tokens_per_second == 0.75
    assert row.plain_ratio == 3.0 and row.tokens_per_second == 2.0
    assert base.turns == (1, 1) and row.turns == (2, 4)  # 3 is the median over the two prompts
    assert base.tau == 1 and row.tau == (5 + 5 + 4 + 4) / 8  # τ of all rounds, not of runs
    assert (row.same, row.prompts, row.identical) == (1, 2, False)
    assert (row.parts, row.decoding) == ((None, 1), None)


def test_ratios_to_generate_are_to_its_own_pace_and_only_greedily_it_keeps_the_text():
    plain, other, fast = (
        Variant("plain", "ar"),
        Variant("generate", None),
        Variant("fast", "dflash"),
    )
    seconds = {plain: (1.0, 1.0), other: (1.0, 8.0), fast: (1.0, 2.0)}
    timings = [
        Timing(variant, prompt, spent, (1, 2, 3), (1, 1), None, {"verify": spent / 2})
        for variant, both in seconds.items()
        for prompt, spent in enumerate(both)
    ]
    _, theirs, row = rows(timings, tuple(seconds), RunRequest(""))
    assert (row.plain_ratio, row.generate_ratio) == (0.75, (1 + 4) / 2)
    assert row.decoding == (2 / 0.5 + 2 / 1.0) / 2  # the first token is the prompt's own
    assert theirs.keeps_text and row.keeps_text
    assert not rows(timings, (other,), RunRequest("", temperature=1.0))[0].keeps_text
    first = _FirstToken()
    first.put("the prompt")
    assert not first.at
    first.put("its token")
    assert first.at
