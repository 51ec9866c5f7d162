"""Recording transformers' generation: compared with its own counts and with plain forwards."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel
from transformers.generation import candidate_generator as theirs

from analysis.engines.generation import recorded
from analysis.measures.acceptance import per_depth, tau
from analysis.measures.tables import Tables
from app import cli
from core.decoding.decode import Decoder
from core.drafting.builders import Chain, SampledChain
from core.errors import UserError
from core.rounds.causes import Cause
from core.traces.reader import read_trace
from tests.helpers import toys

PROMPT = torch.tensor([list(toys.PROMPT)])
REPEATS = torch.tensor([list(toys.PROMPT) * 3])


def assistant():
    """The target with a little noise: it is right now and then."""
    made = toys._make("llama", 0, toys.VOCABULARY, "eager").double()
    for parameter in made.parameters():
        generator = torch.Generator().manual_seed(parameter.numel())
        parameter.data += 0.02 * torch.randn(parameter.shape, generator=generator)
    return made


def dflash():
    """Random weights of the one block drafter that transformers has."""
    torch.manual_seed(0)
    config = MuseGlimmerAssistantConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, block_size=4, mask_token_id=47, sliding_window=64,
        target_layer_ids=[0, 2], max_position_embeddings=4096,
    )  # fmt: skip
    return MuseGlimmerAssistantModel(config).double().eval()


KINDS = {
    "assisted": {"assistant_model": assistant},
    "lookup": {"prompt_lookup_num_tokens": 4},
    "early exit": {"assistant_early_exit": 2},
    "dflash": {"assistant_model": dflash, "speculation_type": "dflash"},
}


@pytest.fixture
def counts(monkeypatch):
    """Counts of transformers itself: (candidates, matches) of each step, by generator."""
    found = []
    for kind in (theirs.AssistedCandidateGenerator, theirs.PromptLookupCandidateGenerator):
        own = kind.update_candidate_strategy

        def counting(self, input_ids, scores, num_matches, own=own):
            found.append((scores.shape[1] - 1, int(num_matches)))
            return own(self, input_ids, scores, num_matches)

        monkeypatch.setattr(kind, "update_candidate_strategy", counting)
    return found


def generate(path, kind, prompt=REPEATS, **more):
    """The recorded text, and transformers' own."""
    model, settings = toys.reference("llama"), dict(KINDS[kind])
    if "assistant_model" in settings:
        settings["assistant_model"] = settings["assistant_model"]()
    settings |= {"max_new_tokens": 24, "do_sample": False} | more
    with recorded(model, path):
        torch.manual_seed(0)
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), **settings)
    return out[0].tolist()


@pytest.mark.parametrize("kind", ["assisted", "lookup", "early exit"])
@pytest.mark.parametrize("sampled", [False, True])
def test_every_step_is_as_transformers_counts_it(kind, sampled, tmp_path, counts):
    more = {"do_sample": True, "temperature": 0.8, "top_k": 20} if sampled else {}
    text = generate(tmp_path / "a.jsonl.gz", kind, **more)
    trace = read_trace(tmp_path / "a.jsonl.gz")
    assert trace.complete and "_get_candidate_generator" not in vars(toys.reference("llama"))
    assert [(r.draft.nodes, len(r.committed) - 1) for r in trace.rounds] == counts
    assert len(set(counts)) > 1
    for record, (_, matches) in list(zip(trace.rounds, counts, strict=True))[:-1]:
        assert record.accepted == matches
    rebuilt = [*trace.header.prompt_ids, int(trace.rounds[0].draft.tokens[0])]
    rebuilt += [t for r in trace.rounds for t in r.committed]
    assert rebuilt == text
    limit = trace.header.settings["max_new_tokens"]
    assert len(trace.header.prompt_ids) + limit == REPEATS.shape[1] + 24
    cut = [r for r in trace.rounds[:-1] if r.accepted < r.draft.nodes]
    drawn = sampled and kind != "lookup"  # whose q is not told: p alone is sampled there
    assert cut and all((r.stop_reason == Cause.REFUSED) == drawn for r in cut)
    if not sampled:
        plain = toys.reference("llama").generate(
            REPEATS, attention_mask=torch.ones_like(REPEATS), max_new_tokens=24, do_sample=False
        )
        assert text == plain[0].tolist()


def draft_model():
    """The toys' draft model on transformers' own attention, 5 tokens a step."""
    made = toys._make("llama", 0, toys.VOCABULARY, "eager").double()
    made.load_state_dict(toys.draft_model().state_dict())
    made.generation_config.num_assistant_tokens = 5
    made.generation_config.num_assistant_tokens_schedule = "constant"
    made.generation_config.assistant_confidence_threshold = 0.0
    return made


OURS = {
    "assisted": (lambda: toys.sps_drafter(), SampledChain(coupled=True), 5),
    "lookup": (lambda: toys.pld_drafter(longest=2, copied=4, whole=False), Chain(), 4),
}


@pytest.mark.parametrize("kind", OURS)
def test_our_method_takes_the_rounds_that_transformers_takes(kind, tmp_path, monkeypatch):
    """Tokens and acceptance lengths, on the same weights and prompts that nobody chose."""
    found = [_rounds_of_both(kind, seed, tmp_path, monkeypatch) for seed in range(4)]
    assert len({accepted for some in found for accepted in some}) > 1, "or the test says nothing"


def _rounds_of_both(kind, seed, tmp_path, monkeypatch):
    """Check that rounds accept the same in both."""
    monkeypatch.setitem(KINDS, "assisted", {"assistant_model": draft_model})
    some = np.random.default_rng(seed).integers(2, toys.VOCABULARY, 9).tolist()
    prompt = tuple(some * 2)
    make, builder, budget = OURS[kind]
    found = toys.run(Decoder("m", make(), builder), 25, budget=budget, prompt=prompt)
    begun = [*prompt, found.tokens[0]]  # ours has the first token from prefill
    text = generate(tmp_path / "a.jsonl", kind, torch.tensor([begun]))
    assert text[len(prompt) :] == list(found.tokens)
    ours, theirs = (
        {r.position: (r.draft.tokens.tolist(), r.accepted) for r in rounds}
        for rounds in (found.rounds, read_trace(tmp_path / "a.jsonl").rounds)
    )
    first, end = min(theirs), len(text) - 1 - budget  # the last drafts are cut otherwise
    ours = {at: each for at, each in ours.items() if first <= at < end}
    assert {at: each for at, each in theirs.items() if at < end} == ours
    assert len(ours) > 2 and first - len(prompt) < 2
    return [accepted for _, accepted in ours.values()]


def test_p_q_and_their_distance_are_those_of_plain_forwards(tmp_path):
    text = generate(tmp_path / "a.jsonl", "assisted", PROMPT)
    trace, target, drafter = read_trace(tmp_path / "a.jsonl"), toys.reference("llama"), assistant()

    @torch.inference_mode()
    def after(model, tokens):
        return model(torch.tensor([tokens]), use_cache=False).logits[0, -1].softmax(-1).numpy()

    seen = 0
    for record in trace.rounds:
        above = text[: record.position]
        path = record.draft.tokens.tolist()
        for row in range(1, len(record.draft)):
            p, q = (after(m, [*above, *path[:row]]) for m in (target, drafter))
            token = path[row]
            assert np.exp(record.draft.log_q[row]) == pytest.approx(q[token], abs=1e-5)
            assert np.exp(record.target_probs.log_p[row]) == pytest.approx(p[token], abs=1e-5)
            ids = record.candidates_after(row - 1).ids
            assert ids.tolist() == np.argsort(-q, kind="stable")[: len(ids)].tolist()
            if row <= len(record.probe.tvd):
                far = np.abs(p - q).sum() / 2
                assert record.probe.tvd[row - 1] == pytest.approx(far, abs=1e-5)
                seen += 1
            choice = record.verdict.target_tokens[row - 1]
            assert choice == p.argmax()
    assert seen > 10


def test_tables_causes_and_reports_work_on_it(tmp_path, capsys):
    path = tmp_path / "a.jsonl.gz"
    generate(path, "assisted")
    trace = read_trace(path)
    tables = Tables.of(trace)
    whole = sum(r.accepted + 1 for r in trace.rounds)
    assert tau(tables)["tau"].item() == pytest.approx(whole / len(trace.rounds))
    assert per_depth(tables)["tvd"].notna().all()
    assert Counter(r.stop_reason for r in trace.rounds)
    assert cli.main(["report", str(path)]) == 0
    assert "transformers Assisted" in capsys.readouterr().out
    assert (
        cli.main(["trace", "export", str(path), "--to", "html", "--out", str(tmp_path / "a.html")])
        == 0
    )


def test_dflash_begins_with_the_token_of_the_prompts_own_pass(tmp_path):
    """Its first step drafts nothing, for it reads the prompt's features."""
    text = generate(tmp_path / "a.jsonl", "dflash")
    trace = read_trace(tmp_path / "a.jsonl")
    assert list(trace.header.prompt_ids) == REPEATS[0].tolist()
    assert trace.rounds[0].draft.tokens[0] == text[REPEATS.shape[1]]
    assert {r.draft.nodes for r in trace.rounds[:-2]} == {3} and trace.rounds[0].probe is not None
    assert [*trace.header.prompt_ids, text[len(trace.header.prompt_ids)]] + [
        t for r in trace.rounds for t in r.committed
    ] == text


class Oracle:
    """A candidate generator that drafts ``text`` itself, three tokens at once."""

    requires_model_outputs = False

    def __init__(self, text):
        self.text = text

    def get_candidates(self, input_ids):
        done = input_ids.shape[1]
        next_ones = torch.tensor([self.text[done : done + 3]])
        logits = torch.full((1, next_ones.shape[1], toys.VOCABULARY), -30.0)
        return torch.cat([input_ids, next_ones], 1), logits.scatter(2, next_ones[..., None], 30.0)

    def update_candidate_strategy(self, input_ids, scores, num_matches):
        pass


@pytest.fixture
def oracle(monkeypatch):
    """A model whose candidates are all its own text, and that text."""
    model, mask = toys.reference("llama"), torch.ones_like(PROMPT)
    text = model.generate(PROMPT, attention_mask=mask, max_new_tokens=16, do_sample=False)
    text = text[0].tolist()

    monkeypatch.setattr(type(model), "_get_candidate_generator", lambda self, **more: Oracle(text))
    return model, text


@pytest.mark.parametrize("end", ["stop token", "length"])
@pytest.mark.parametrize("sampled", [False, True])
def test_a_text_that_ends_inside_a_draft_is_recorded(end, sampled, oracle, tmp_path):
    """transformers cuts what it accepted there, so it tells no token after the last one."""
    model, text = oracle
    begin, count = PROMPT.shape[1], 6  # the second of the second draft
    assert text[begin + count - 1] not in text[begin : begin + count - 1]
    more = {"do_sample": True, "temperature": 0.001} if sampled else {"do_sample": False}
    more |= {"max_new_tokens": count} if end == "length" else {"max_new_tokens": 12}
    more |= {"eos_token_id": text[begin + count - 1], "pad_token_id": 0} if end != "length" else {}
    path = tmp_path / "a.jsonl"
    with recorded(model, path):
        out = model.generate(
            PROMPT, attention_mask=torch.ones_like(PROMPT), prompt_lookup_num_tokens=3, **more
        )
    assert out[0].tolist() == text[: begin + count]
    trace = read_trace(path)
    assert trace.complete and cli.main(["trace", "check", str(path)]) == 0
    last = trace.rounds[-1]
    assert list(last.committed) == text[begin + count - 2 : begin + count]
    if sampled:  # its choices after the cut are not known
        assert last.accepted == 2 and last.verdict.bonus == -1
        assert last.wanted_rank is None and last.probe.rank_q.tolist() == [1, 1, -1]
    else:  # its draft is kept whole
        assert last.accepted == 3 and last.verdict.bonus == text[begin + 7]


def test_a_mixture_with_q_tells_no_token_of_the_target(oracle, tmp_path):
    model, _ = oracle
    with recorded(model, tmp_path / "a.jsonl"):
        model.generate(
            PROMPT, attention_mask=torch.ones_like(PROMPT), max_new_tokens=6, do_sample=False,
            prompt_lookup_num_tokens=3, assistant_ensemble_weight=0.5,
        )  # fmt: skip
    last = read_trace(tmp_path / "a.jsonl").rounds[-1]
    assert last.accepted == 2 and last.verdict.bonus == -1  # the text ends inside a draft


def test_an_error_of_the_recording_does_not_end_the_generation(
    oracle, tmp_path, monkeypatch, caplog
):
    model, text = oracle

    def broken(scene):
        raise RuntimeError("mine")

    monkeypatch.setattr("analysis.engines.generation.observe", broken)
    with recorded(model, tmp_path / "a.jsonl"):
        out = model.generate(
            PROMPT, attention_mask=torch.ones_like(PROMPT), max_new_tokens=8, do_sample=False,
            prompt_lookup_num_tokens=3,
        )  # fmt: skip
    assert out[0].tolist() == text[: PROMPT.shape[1] + 8]
    assert not read_trace(tmp_path / "a.jsonl").complete
    assert [record.getMessage() for record in caplog.records] == [
        f"the recording at {tmp_path / 'a.jsonl'} ended: mine"
    ]


def test_misuse_is_one_sentence(tmp_path):
    model = toys.reference("llama")
    nothing = pytest.raises(UserError, match="nothing was drafted")
    with nothing, recorded(model, tmp_path / "a.jsonl"):
        model.generate(PROMPT, attention_mask=torch.ones_like(PROMPT), max_new_tokens=3)
    with pytest.raises(UserError, match="one call"), recorded(model, tmp_path / "b.jsonl"):
        for _ in range(2):
            model.generate(
                PROMPT, attention_mask=torch.ones_like(PROMPT), max_new_tokens=3,
                prompt_lookup_num_tokens=2,
            )  # fmt: skip
    no_seam = pytest.raises(UserError, match="no assisted generation")
    with no_seam, recorded(object(), tmp_path / "c"):
        pass
    with pytest.raises(RuntimeError, match="mine"), recorded(model, tmp_path / "d.jsonl"):
        model.generate(
            PROMPT, attention_mask=torch.ones_like(PROMPT), max_new_tokens=3,
            prompt_lookup_num_tokens=2,
        )  # fmt: skip
        raise RuntimeError("mine")
    assert not read_trace(tmp_path / "d.jsonl").complete
    assert "_get_candidate_generator" not in vars(model)
