"""The roofline's counts against hand counts and against torch's own counter of FLOPs."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from analysis.experiments.bench import Result, Timing, roofs
from analysis.experiments.roofline import (
    COMPUTE,
    MEMORY,
    AttentionShape,
    Drafting,
    Forward,
    Gauge,
    Machine,
    Passes,
    RoundWork,
    Work,
    passes_of,
    plain_passes,
)
from analysis.experiments.variants import Variant
from core.drafting.builders import best_first
from core.models.fast_layers import can_pack, use_fast_layers
from core.rounds.draft import Draft
from core.rounds.round import Times
from tests.helpers import toys

SIZES = {
    "vocab_size": 20, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "attn_implementation": "eager",
}  # fmt: skip


def llama(tied=False, dtype=torch.float32, **changes):
    config = LlamaConfig(**(SIZES | {"tie_word_embeddings": tied} | changes))
    return LlamaForCausalLM(config).to(dtype).eval()


# ── the target ───────────────────────────────────────────────────────────────────────────────────

# q and o 8·8, k and v 8·4 (two of four heads), three MLP matrices 8·12; two norms of 8 a layer and
# one after the last; a head of 20·8. Keys and values of a token: 2 · 2 layers · 2 heads · 2 wide.
LAYER = 2 * 64 + 2 * 32 + 3 * 96
BODY, HEAD, KV = 2 * (LAYER + 16) + 8, 160, 16
PAIR = 4 * 2 * 4 * 2  # scores and sums: 2 · 2 FLOPs, 2 layers, 4 heads, 2 wide


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("dtype", "item"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_a_forward_is_what_one_counts_by_hand(tied, dtype, item):
    forward = Forward.of(llama(tied, dtype))
    assert forward.body.bytes == BODY * item and forward.head.bytes == HEAD * item
    # three rows after five: five context rows read, three written; 3·5 + 1 + 2 + 3 pairs
    assert forward.work(3, 5) == Work(
        (BODY + HEAD + KV * 8) * item, 3 * 2 * (2 * LAYER + HEAD) + PAIR * 21
    )
    # the head on one row; a root with two children: 1 + 2 + 2 pairs of their own
    assert forward.work(3, 5, pairs=5, scored=1) == Work(
        (BODY + HEAD + KV * 8) * item, 3 * 2 * 2 * LAYER + 2 * HEAD + PAIR * 20
    )


def test_heads_that_share_keys_read_less_and_compute_the_same():
    own, shared = (Forward.of(llama(num_key_value_heads=groups)).attention for groups in (4, 1))
    assert own.row_bytes == 4 * shared.row_bytes and own.pair_flops == shared.pair_flops == PAIR
    mixed = llama().config
    mixed.layer_types = ["conv", "full_attention"]  # a state keeps no keys
    one, two = (AttentionShape.of(config, torch.float32) for config in (mixed, llama().config))
    assert 2 * one.pair_flops == two.pair_flops == PAIR


def test_a_head_width_of_its_own_and_norms_of_heads_are_counted():
    forward = Forward.of(Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=4)))
    layer = 2 * 128 + 2 * 64 + 3 * 96
    assert forward.body.bytes == 4 * (2 * (layer + 16 + 2 * 4) + 8)
    assert forward.body.flops == 2 * 2 * layer
    assert forward.attention.row_bytes == 4 * 2 * KV and forward.attention.pair_flops == 2 * PAIR


@pytest.mark.parametrize("tied", [False, True])
def test_packed_weights_count_as_they_were(tied):
    if not can_pack(torch.float32, torch.device("cpu")):
        pytest.skip("nothing is packed on this machine")
    model = llama(tied)
    packed = copy.deepcopy(model)
    use_fast_layers(packed, torch.float32, torch.device("cpu"))
    assert Forward.of(packed) == Forward.of(model)


@pytest.mark.parametrize("family", toys.FAMILIES)
def test_flops_are_those_torch_counts(family):
    model, rows = toys.reference(family), 11
    with FlopCounterMode(display=False) as counter:
        model(torch.arange(rows)[None], use_cache=False)
    forward = Forward.of(model)
    expected = forward.work(rows, 0, pairs=rows * rows)  # eager attention masks, it skips nothing
    assert counter.get_total_flops() == expected.flops


# ── drafters ─────────────────────────────────────────────────────────────────────────────────────


def drafted(drafter, context=9, budget=6):
    """FLOPs torch counts for the first round of a drafter, and the draft."""
    torch.manual_seed(0)
    features = torch.randn(context, 32 * len(drafter.layers), dtype=torch.float64)
    drafter.reset(64)
    drafter.extend(list(range(context)), features)
    with FlopCounterMode(display=False) as counter:
        draft = best_first(drafter.begin(3, budget), [3], budget)
    return counter.get_total_flops(), draft


def test_a_block_diffusion_drafter_s_flops_are_those_torch_counts():
    drafter = toys.dflash_drafter()
    flops, _ = drafted(drafter)
    (work,) = Drafting.of(drafter).work(context=9, fresh=9)  # type: ignore[union-attr]
    assert work.flops == flops


def test_its_bytes_are_its_weights_the_head_and_the_context():
    drafter = toys.dflash_drafter()
    (work,) = Drafting.of(drafter).work(context=9, fresh=2)  # type: ignore[union-attr]
    weights = sum(p.numel() for p in drafter.model.parameters())
    assert work.bytes == 8 * (weights + toys.VOCABULARY * 32 + 2 * 2 * 2 * 8 * (9 + 2))


def test_a_shifted_drafter_s_flops_are_those_torch_counts():
    drafter = toys.dart_drafter()
    flops, _ = drafted(drafter)
    drafting = Drafting.of(drafter)
    assert drafting is not None
    (work,) = drafting.work(context=9, fresh=9)
    # computed and masked away: later rows of the block; not computed: the last prefix row twice
    masked, last = 7 * 6 / 2, 7
    assert work.flops + drafting.attention.pair_flops * (masked - last) == flops


def test_q_after_each_candidate_is_a_second_pass_over_the_head():
    drafter = toys.treeflash_drafter(zero=True)  # q′ is q: no search reaches rows in vain
    flops, draft = drafted(drafter)
    drafting = Drafting.of(drafter)
    assert drafting is not None and draft.proposal is not None
    rows = len(draft.proposal.lists.ids)
    first, second = drafting.work(context=9, fresh=9, states=(rows,))
    assert rows > 1 and first.flops + second.flops == flops
    # [u, g] of 2·32 → 2·24 with a bias, d of 24 → 32, a norm of 32; and the head
    own = 64 * 48 + 48 + 24 * 32 + 32
    assert second.bytes == 8 * (own + toys.VOCABULARY * 32)
    assert Drafting.of(toys.dflash_drafter()).work(9, 9) == (first,)  # type: ignore[union-attr]
    assert drafting.work(context=9, fresh=9) == (first,)


def test_states_that_need_those_before_them_take_a_pass_for_each_depth():
    _, draft = drafted(toys.eagle_drafter(), budget=9)
    drafting, record = Drafting.of(toys.eagle_drafter()), SimpleNamespace(draft=draft)
    record.proposal = draft.proposal
    listed = draft.depths[draft.proposal.after >= 0].tolist()
    passes = drafting.expanded(record)
    assert passes == tuple(listed.count(depth) for depth in range(1, max(listed) + 1))
    assert len(passes) > 1 and sum(passes) + 1 == len(listed), "the root's is in the first pass"
    first, *others = drafting.work(9, 2, passes)
    assert (first,) == drafting.work(9, 2)
    assert others == [drafting.state.work(count) for count in passes]


def test_a_drafter_without_a_known_network_is_not_counted():
    assert Drafting.of(None) is None
    assert Drafting.of(toys.RandomDrafter()) is None


# ── a run ────────────────────────────────────────────────────────────────────────────────────────


def test_plain_rounds_and_generate_s_steps_are_the_same_forwards():
    run = toys.run(toys.AR, 12)
    forward, prompt = Forward.of(toys.model()), len(toys.PROMPT)
    counted = passes_of(forward, None, prompt, run.rounds)
    assert counted == plain_passes(forward, prompt, 12)
    assert counted.rows == len(counted.rounds) == 11
    assert counted.rounds[0] == RoundWork((), forward.work(1, prompt), forward.commit())
    assert counted.prompt == (forward.work(prompt, 0, scored=1),)


def test_a_round_takes_in_what_the_one_before_committed():
    text = (*toys.PROMPT, *toys.plain(40))
    rounds = toys.run(toys.tree(toys.NoisyOracle(text)), 30, budget=9).rounds
    forward, drafting = Forward.of(toys.model()), Drafting.of(toys.dflash_drafter())
    assert drafting is not None and len({r.accepted for r in rounds}) > 1
    counted = passes_of(forward, drafting, len(toys.PROMPT), rounds)
    taken = [len(toys.PROMPT), *(r.accepted + 1 for r in rounds[:-1])]
    place = 0
    for record, new, work in zip(rounds, taken, counted.rounds, strict=True):
        place += new
        assert work.draft == drafting.work(place, new)
        sees = sum(len(record.draft.path(row)) for row in range(len(record.draft)))
        assert work.verify == forward.work(len(record.draft), place, pairs=sees)
        assert work.commit == forward.commit(record.verdict.path)
        assert work.passes == (*work.draft, work.verify, work.commit)
        stages = [pass_ for name in vars(Times()) for pass_ in work.stage(name)]
        assert tuple(stages) == work.passes and work.stage("build") == ()
    assert counted.rows == sum(len(r.draft) for r in rounds)


def test_a_text_of_one_token_has_no_round():
    rounds = toys.run(toys.AR, 1).rounds
    assert passes_of(Forward.of(toys.model()), None, 8, rounds).rounds == ()


def test_a_commit_reads_the_path_s_logits_and_moves_rows_that_are_apart():
    forward, logits = Forward.of(llama()), 4 * 20
    assert forward.commit() == Work(logits) and forward.commit((0, 1, 2)) == Work(3 * logits)
    assert forward.commit((0, 2)) == Work(2 * logits + 2 * 2 * 4 * KV)


def test_stored_weights_are_read_as_they_are_stored():
    forward = Forward.of(llama())
    stored = forward.stored(1000, torch.float16)
    assert stored.work(1, 0).bytes == 1000 + 2 * KV
    assert stored.work(3, 5).flops == forward.work(3, 5).flops


# ── floors ───────────────────────────────────────────────────────────────────────────────────────


def test_a_floor_is_the_larger_limit_of_each_pass():
    machine = Machine(bandwidth=100.0, rate=1000.0)
    small, large = Work(200, 500), Work(100, 6000)
    assert machine.floor([small]) == 2.0 and machine.bound([small]) == MEMORY
    assert machine.floor([large]) == 6.0 and machine.bound([large]) == COMPUTE
    assert machine.floor([small, large]) == 8.0 and machine.bound([small, large]) == COMPUTE
    assert machine.floor([]) == 0.0
    assert small + large == Work(300, 6500)


def test_the_machine_is_measured():
    gauge = Gauge(torch.device("cpu"), torch.float32)
    found = gauge.machine
    assert 1e6 < found.bandwidth < 1e14 and 1e6 < found.rate < 1e17
    gauge._copies[:], gauge._products[:] = [1.0, 2.0, 9.0], [4.0, 1.0, 2.0]
    moved, flops = 2 * 4 * gauge._source.numel(), 2 * gauge._matrix.shape[0] ** 3
    assert gauge.machine == Machine(moved / 2.0, flops / 2.0)


def test_the_share_reached_is_the_floor_s_of_what_was_measured():
    machine = Machine(bandwidth=100.0, rate=1000.0)
    plain, rival = Variant("plain", "ar"), Variant("generate", None)
    lookup = Variant("generate + lookup", None, lookup=10)
    first = RoundWork((), Work(200, 500), Work(100))
    counted = Passes(
        (Work(400, 0),), (first, RoundWork((Work(100, 4000),), Work(100, 0), Work())), 5
    )
    whole = Timing(plain, 0, 20.0, (1, 2), (1,), counted, {"verify": 12.0, "build": 2.0})
    half = replace(whole, seconds=40.0, stages={"verify": 24.0, "build": 4.0})
    timings = [
        whole, half, half,
        Timing(rival, 0, 22.0, (1, 2), None, counted), Timing(lookup, 0, 9.0, (1, 2), None),
    ]  # fmt: skip
    ours, theirs = roofs(Result(timings, machine), (plain, rival, lookup))
    assert (ours.rows, ours.bytes, ours.flops) == (2.5, 250.0, 2250.0)
    assert ours.floor == (2 + 1 + 4 + 1) / 2 and ours.bound == MEMORY
    assert ours.seconds == 14.0 and ours.reached == 8 / 28 and ours.whole == (4 + 8) / 40
    verify, build = ours.stages["verify"], ours.stages["build"]
    assert list(ours.stages) == ["build", "verify"], "stages that took no time are left out"
    assert (verify.bytes, verify.floor, verify.bound) == (150.0, 1.5, MEMORY)
    assert verify.seconds == 12.0 and verify.reached == 3 / 24
    assert build.seconds == 2.0 and build.floor is build.bound is build.reached is None
    assert theirs.name == "generate" and theirs.seconds is theirs.reached is None
    assert theirs.whole == 12 / 22 and theirs.stages == {}
    launched = roofs(Result(timings, machine, staged=False), (plain,))
    assert launched[0].stages == {} and launched[0].reached == ours.reached


def test_a_draft_s_rows_see_the_context_their_ancestors_and_themselves():
    forward = Forward.of(toys.model())
    assert forward.verify(Draft.root_only(1), 30) == forward.work(1, 30)
