"""Every drafter against its method written out: q at each drafted node, and along a text.

A row is a drafter beside a slow reading of its method, which is in the drafter's own tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from core.drafting.builders import Chain, DynamicTree, best_first
from core.methods.gemma4_assistant.drafter import load as load_assistant
from core.methods.loading import check_checkpoint
from core.methods.medusa.tree import published
from core.methods.method import DepthOptions
from core.methods.mtp import MtpOptions
from core.methods.mtp.drafter import load as load_mtp
from core.models.hub import Source
from core.models.layers import Rope
from core.models.target import Target
from tests.helpers import gemma_assistants, hydra_plus_published, mtp_published, slow_methods, toys
from tests.helpers.drafter_reference import (
    IDS,
    assert_close,
    check_draft,
    listed,
    numbers,
    tokens_after,
)
from tests.helpers.gemma_assistants import layers_without_keys  # noqa: F401 (a fixture)
from tests.helpers.timing import amount, usually

TEXT = [7, 5, 17, 3, 44, 9, 28, 3, 11, 30, 2, 8]
ENDS = (1, 6, 7, 10)[: amount(3, 4)]  # tokens of the text that are committed when a round begins
ANCHORS = [1, 2, 10], [5]
SIZES = ("eagle3.model.PREFIX_CHUNK", "mtp.drafter.AT_ONCE", "sps.drafter.PREFILL_CHUNK",
         "uno.drafter.PREFILL_CHUNK")  # fmt: skip
Slow = Callable[[list[int]], Tensor]  # log q [V] after a path that begins with the root


@dataclass(frozen=True, eq=False)
class Case:
    """A drafter, and its slow method after a text with these features.

    given  the features of a text; None: random ones
    near   how far log q may be off
    """

    drafter: Any
    slow: Callable[[list[int], Any], Slow]
    given: Callable[[list[int]], Any] | None = None
    near: float = 2e-5

    def features(self, text: list[int]) -> Any:
        given = self.given or (lambda text: numbers(1, len(text), 32 * len(self.drafter.layers)))
        return given(text)


def nothing(text):
    """The features of a drafter that reads none."""
    return torch.empty(len(text), 0)


def by_path(make, slow):
    """``slow`` gives log q [V] after one path."""

    def case(folder, **changes):
        drafter = make(**changes)
        return Case(drafter, lambda *context: partial(slow, drafter, *context))

    return case


def by_depth(make, slow, **more):
    """``slow`` gives log q [L, V] of all depths after a root."""

    def case(folder, **changes):
        drafter = make(**changes)
        return Case(drafter, lambda *context: rows_of(partial(slow, drafter, *context)), **more)

    return case


def rows_of(slow) -> Slow:
    rows = cache(slow)
    return lambda path: rows(path[0])[len(path) - 1]


def before(folder, kind, **changes):
    """A drafter whose q depends on the tokens before in its block."""
    drafter = slow_methods.BEFORE[kind](**changes)

    def slow(text, features):
        block = cache(partial(slow_methods.BlockBefore, drafter, features))
        return lambda path: getattr(block(path[0]), kind)(len(path) - 1, [text[-1], *path])

    return Case(drafter, slow)


def treeflash(folder, **options):
    drafter = toys.treeflash_drafter(**options)

    def slow(text, features):
        rows = cache(partial(slow_methods.treeflash_rows, drafter, features))
        heat = options.get("temperature", 1.0)
        return lambda path: slow_methods.treeflash(
            drafter, rows(path[0])[len(path) - 1], path[-1], heat
        )

    return Case(drafter, slow)


def hydra_plus(folder, family):
    drafter, w = hydra_plus_published.loaded(folder, family)
    config = toys.model(family).config

    def slow(text, features):
        hidden = hydra_plus_published.slow_hidden(w, config, Rope(), features)
        return lambda path: hydra_plus_published.heads_on(w, hidden, path).log_softmax(-1)

    return Case(drafter, slow)


def mtp(folder, family):
    main, oracle = mtp_published.published(family, folder)
    check_checkpoint("mtp", Source(str(folder)), "toy", main.config)
    drafter = load_mtp(mtp_published.language(main, folder), None, MtpOptions(4))
    assert drafter.layers == (main.config.num_hidden_layers - 1,)
    slow = partial(partial, mtp_published.slow_log_q, main, oracle)
    return Case(drafter, lambda text, _: slow(text), partial(mtp_published.states, main))


def assistant(folder, target, kind):
    owner, oracle = gemma_assistants.target_of(target), gemma_assistants.assistant_of(kind, target)
    oracle.save_pretrained(folder)
    check_checkpoint("gemma4-assistant", Source(str(folder)), "toy", owner.config)
    language = gemma_assistants.language(owner)
    drafter = load_assistant(language, folder, DepthOptions(4))
    reader = Target(language.model, drafter.layers)
    slow = partial(partial, gemma_assistants.slow_log_q, owner, oracle)
    read = lambda text: reader.prefill(text, 200).features  # noqa: E731
    return Case(drafter, lambda text, _: slow(text), read, 2e-4)


def language_model(folder):
    slow = lambda text, _: lambda path: slow_methods.fresh(*text, *path)[-1]  # noqa: E731
    return Case(toys.sps_drafter(), slow, nothing, 1e-4)


def uno(folder, causal, masks, family):
    drafter = toys.uno_drafter(causal, masks, family=family)
    slow = partial(slow_methods.uno, drafter, family=family)
    return Case(drafter, lambda text, _: rows_of(partial(slow, text)), nothing, 1e-5)


SWITCHES = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
EAGLE2 = [{}, {"bias": False, "temperature": 0.5}, {"num_key_value_heads": 4, "rope": Rope(500.0)}]
EAGLE3 = [
    {},
    {"num_key_value_heads": 4, "rope": Rope(500.0)},
    {"temperature": 0.5, "ids": IDS},
    *({switch: True} for switch in SWITCHES),
    {"window": 3},
    {"window": 1},
    {**dict.fromkeys(SWITCHES, True), "ids": IDS, "layers": (0, 3), "head_dim": 16},
    {"num_hidden_layers": 2},
    {"num_hidden_layers": 3, "window": 3, "whole": (1,), "qk_norm": True},
    {"num_hidden_layers": 2, "window": 2, "ids": IDS, "norm_output": True},
    {"num_hidden_layers": 3, "window": 2, "whole": (0, 2), "norm_before_residual": True},
]
PEAGLE = [
    {},
    {"num_hidden_layers": 1, "qk_norm": True, "norm_before_residual": True},
    {"num_hidden_layers": 4, "norm_before_fc": True, "temperature": 0.5, "ids": IDS},
    {"fc_norm": True, "window": 3, "num_hidden_layers": 3, "whole": (1,), "own_embedding": True},
    {"window": 1, "depth": 1},
]
DFLASH = [
    {},
    {"num_key_value_heads": 1, "head_dim": 16, "causal": True},
    {"num_hidden_layers": 1, "block_size": 2, "rope": slow_methods.LLAMA3},
    {"rope": Rope(500.0), "rms_norm_eps": 1e-2, "target_layer_ids": (0, 1, 2)},
    {"sliding": (True, False), "window": 5},
    {"sliding": (True, True), "window": 10, "causal": False},
    {"sliding": (False, True), "window": 3, "causal": False, "num_key_value_heads": 4},
    {"sliding": (True, False), "window": 1, "causal": True},
]
DART = [
    {},
    {"num_key_value_heads": 4},
    {"num_key_value_heads": 1, "head_dim": 16},
    {"draft_length": 1},
    {"rope": Rope(500.0), "rms_norm_eps": 1e-1},
    {"temperature": 0.5},
    {"temperature": 2.0, "ids": range(5, 40)},
]
GEMMA = [
    {"target": target, "kind": kind}
    for target, kind in product(gemma_assistants.TARGETS, gemma_assistants.ASSISTANTS)
]
ROWS = {  # how a case is made, of which changes, the builders, and nodes of a draft
    "eagle2": (by_path(toys.feature_drafter, slow_methods.eagle2), EAGLE2,
               (DynamicTree(4), best_first), 14),
    "eagle3": (by_path(toys.eagle_drafter, slow_methods.eagle3), EAGLE3,
               (DynamicTree(4), best_first), amount(9, 14)),
    "peagle": (by_depth(toys.parallel_drafter, slow_methods.peagle), PEAGLE,
               (Chain(), best_first), 14),
    "dflash": (by_depth(toys.dflash_drafter, slow_methods.dflash), DFLASH,
               (Chain(), best_first), 14),
    "treeflash": (treeflash, [{}, {"candidates": 2, "siblings": 48}, {"temperature": 0.5}],
                  (best_first,), 40),
    "dart": (by_depth(toys.dart_drafter, slow_methods.dart), DART,
             (best_first,), 14),
    "before": (before, [{"kind": kind} | changes for kind, changes in slow_methods.CHANGES],
               (Chain(), best_first), 20),
    "medusa": (by_depth(toys.medusa_drafter, slow_methods.medusa), [{}, {"own": True}],
               (best_first,), 30),
    "hydra": (by_path(toys.hydra_drafter, slow_methods.hydra),
              [{}, {"own": True, "res_connection": True}], (best_first,), 30),
    "hydra++": (hydra_plus, [{"family": "llama"}, {"family": "qwen3"}],
                (best_first, published()), 40),
    "mtp": (mtp, [{"family": family} for family in mtp_published.FAMILIES],
            (DynamicTree(4), best_first, Chain()), 9),
    "gemma": (assistant, GEMMA, (DynamicTree(4), best_first, Chain()), 9),
    "sps": (language_model, [{}], (Chain(), best_first), 11),
    "uno": (uno, [{"causal": causal, "masks": masks, "family": family}
                  for causal, masks in ((True, 0), (False, 7)) for family in ("llama", "mistral")],
            (Chain(), best_first), 9),
}  # fmt: skip
ALONG = [(name, at) for name, (_, changes, _, _) in ROWS.items() for at in range(len(changes))]
DRAFTED = [(*row, at) for row in ALONG for at in range(len(ROWS[row[0]][2]))]
# Each change once, by a builder in turn: each of the assistant's with each target and each kind.
USUAL = [row for row in DRAFTED if (row[1] // 3 + row[1] + row[2]) % len(ROWS[row[0]][2]) == 0]


@pytest.fixture
def case(name, change, tmp_path, monkeypatch):
    for part in SIZES:
        monkeypatch.setattr(f"core.methods.{part}", 2)
    make, changes, _, _ = ROWS[name]
    with torch.no_grad():
        yield make(tmp_path, **changes[change])


def dirtied(case):
    """Another text was read, a session begun there, and more of it waits."""
    other = TEXT[::-1]
    features = case.features(other)
    case.drafter.reset(60)
    case.drafter.extend(other[:9], features[:9])
    case.drafter.begin(3, 4)
    case.drafter.extend(other[9:], features[9:])


def check_lists(session, after, root, width, near):
    """Of a drafter whose q depends on the depth alone: its best tokens, as many as asked for."""
    lists = listed(session)
    for depth, (ids, log_q) in enumerate(zip(lists.ids.tolist(), lists.log_q, strict=True), 1):
        q = after([root] * depth)
        assert len(set(ids)) == len(ids) == min(width, int(q.isfinite().sum()))
        assert_close(log_q, q.topk(len(ids)).values, near)
        assert_close(log_q, q[ids], near)


@pytest.mark.parametrize(("name", "change", "builder"), usually(USUAL, DRAFTED))
def test_every_drafted_nodes_q_equals_a_fresh_forward_along_its_path(name, case, builder):
    drafter, features = case.drafter, case.features(TEXT)
    _, _, builders, nodes = ROWS[name]
    builder, low = builders[builder], 0
    dirtied(case)
    drafter.reset(40)
    for end, width in zip(ENDS, (16, 20, 1024, 1), strict=False):
        for part in (slice(low, low + 1), slice(low + 1, end)):  # one extension, or two
            if TEXT[part]:
                drafter.extend(TEXT[part], features[part])
        text, root, low = TEXT[:end], TEXT[end + 1], end
        drafter.begin(TEXT[end], 4)  # which leaves nothing behind
        after, session = case.slow(text, features[:end]), drafter.begin(root, max(16, width))
        draft, part = builder(session, [*text, root], nodes), drafter.covered
        assert session.draft_vocabulary == (None if part is None else len(part.ids))
        assert draft.nodes == (min(nodes, drafter.max_depth) if builder == Chain() else nodes)
        assert draft.depths.max() > 1 or nodes < 10 or drafter.max_depth == 1
        check_draft(draft, after, case.near)
        if session.factorised:
            check_lists(session, after, root, max(16, width), case.near)
    deepest = tokens_after(draft, int(draft.depths.argmax()))
    for path in ([root, 3, 40, 2, 9, 1, 30], deepest):  # of tokens that were not drafted, too
        path = path[: drafter.max_depth]
        for depth, row in enumerate(session.log_q(path)[: len(path)], 1):
            assert_close(row.exp(), after(path[:depth]).exp(), case.near)


@pytest.mark.parametrize(("name", "change"), ALONG)
def test_q_along_a_text_in_one_pass_equals_a_fresh_forward_at_every_place(name, case):
    """As training, ``diagnose`` and ``calibrate`` read it; the same by sessions of one pass."""
    drafter, features, tokens = case.drafter, case.features(TEXT), torch.tensor(TEXT)
    for anchors in ANCHORS:
        places = torch.tensor(anchors)
        found = drafter.log_q_at(tokens, features, places)
        assert found.shape == (len(anchors), drafter.max_depth, toys.VOCABULARY)
        sessions = drafter.begin_each(tokens, features, places, 8)
        for own, anchor, session in zip(found, anchors, sessions, strict=True):
            path = [*TEXT[anchor:], *[TEXT[-1]] * 8][: drafter.max_depth]
            after = case.slow(TEXT[:anchor], features[:anchor])
            for depth, row in enumerate(own, 1):
                assert_close(row.exp(), after(path[:depth]).exp(), case.near)
            assert_close(session.log_q(path).exp(), own.exp(), case.near)
        assert torch.equal(drafter.log_q_at(tokens, features, places), found)


@pytest.mark.parametrize(("name", "change"), [(name, 0) for name in ROWS])
def test_what_it_is_fed_one_token_late_would_be_seen(name, case):
    """Or the comparisons above would prove little: of features, or else of the text."""
    tokens, features, places = torch.tensor(TEXT), case.features(TEXT), torch.tensor([2, 7, 10])
    late = (tokens, features.roll(1, 0)) if features.numel() else (tokens.roll(1), features)
    right, wrong = (case.drafter.log_q_at(*fed, places).exp() for fed in ((tokens, features), late))
    assert ((wrong - right).abs().amax((1, 2)) > 100 * case.near).all()
