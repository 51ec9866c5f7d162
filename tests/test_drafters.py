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
from core.methods.loading import check
from core.methods.medusa.tree import published
from core.methods.method import DepthOptions
from core.methods.mtp import MtpOptions
from core.methods.mtp.drafter import load as load_mtp
from core.models.hub import Source
from core.models.layers import Rope
from core.models.target import Target
from tests import (
    test_dart,
    test_eagle2,
    test_eagle3,
    test_heads,
    test_hydra_plus,
    test_mtp,
    test_peagle,
    test_sps,
    test_token_before,
    test_uno,
    toys,
)
from tests import test_gemma4_assistant as test_gemma
from tests.test_dflash import assert_close, numbers
from tests.test_gemma4_assistant import layers_without_keys  # noqa: F401 (a fixture)
from tests.timing import amount, usually

TEXT = [7, 5, 17, 3, 44, 9, 28, 3, 11, 30, 2, 8, 21, 46, 0]
ENDS = (1, 6, 7, 10)  # tokens of the text that are committed when a round begins
ANCHORS = [1, 2, 9, 13], [5]
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
    drafter = test_token_before.KINDS[kind](**changes)

    def slow(text, features):
        block = cache(partial(test_token_before.Slow, drafter, features))
        return lambda path: getattr(block(path[0]), kind)(len(path) - 1, [text[-1], *path])

    return Case(drafter, slow)


def hydra_plus(folder, family):
    drafter, w = test_hydra_plus.loaded(folder, family)
    config = toys.model(family).config

    def slow(text, features):
        hidden = test_hydra_plus.slow_hidden(w, config, Rope(), features)
        return lambda path: test_hydra_plus.heads_on(w, hidden, path).log_softmax(-1)

    return Case(drafter, slow)


def mtp(folder, family):
    main, oracle = test_mtp.published(family, folder)
    check("mtp", Source(str(folder)), "toy", main.config)
    drafter = load_mtp(test_mtp.language(main, folder), None, MtpOptions(4))  # the target's folder
    assert drafter.layers == (main.config.num_hidden_layers - 1,)
    slow = partial(partial, test_mtp.slow_log_q, main, oracle)
    return Case(drafter, lambda text, _: slow(text), partial(test_mtp.states, main))


def assistant(folder, target, kind):
    owner, oracle = test_gemma.target_of(target), test_gemma.assistant_of(kind, target)
    oracle.save_pretrained(folder)
    check("gemma4-assistant", Source(str(folder)), "toy", owner.config)
    language = test_gemma.language(owner)
    drafter = load_assistant(language, folder, DepthOptions(4))
    reader = Target(language.model, drafter.layers)
    slow = partial(partial, test_gemma.slow_log_q, owner, oracle)
    read = lambda text: reader.prefill(text, 200).features  # noqa: E731
    return Case(drafter, lambda text, _: slow(text), read, 2e-4)


def language_model(folder):
    slow = lambda text, _: lambda path: test_sps.fresh(*text, *path)[-1]  # noqa: E731
    return Case(toys.sps_drafter(), slow, nothing, 1e-4)


def uno(folder, causal, masks, family):
    drafter = toys.uno_drafter(causal, masks, family=family)
    slow = partial(test_uno.expected, drafter, family=family)
    return Case(drafter, lambda text, _: rows_of(partial(slow, text)), nothing, 1e-5)


GEMMA = [{"target": target, "kind": kind}
         for target, kind in product(test_gemma.TARGETS, test_gemma.ASSISTANTS)]  # fmt: skip
ROWS = {  # how a case is made, of which changes, the builders, and nodes of a draft
    "eagle2": (by_path(toys.feature_drafter, test_eagle2.slow_log_q), test_eagle2.CHANGES,
               (DynamicTree(4), best_first), 14),
    "eagle3": (by_path(toys.eagle_drafter, test_eagle3.slow_log_q), test_eagle3.CHANGES,
               (DynamicTree(4), best_first), amount(9, 14)),
    "peagle": (by_depth(toys.parallel_drafter, test_peagle.slow_log_q), test_peagle.CHANGES,
               (Chain(), best_first), 14),
    "dart": (by_depth(toys.dart_drafter, test_dart.slow_log_q), test_dart.CHANGES,
             (best_first,), 14),
    "before": (before, [{"kind": kind} | changes for kind, changes in test_token_before.CHANGES],
               (Chain(), best_first), 20),
    "medusa": (by_depth(toys.medusa_drafter, test_heads.slow_medusa), [{}, {"own": True}],
               (best_first,), 30),
    "hydra": (by_path(toys.hydra_drafter, test_heads.slow_hydra),
              [{}, {"own": True, "res_connection": True}], (best_first,), 30),
    "hydra++": (hydra_plus, [{"family": "llama"}, {"family": "qwen3"}],
                (best_first, published()), 40),
    "mtp": (mtp, [{"family": family} for family in test_mtp.FAMILIES],
            (DynamicTree(4), best_first, Chain()), 9),
    "gemma": (assistant, GEMMA, (DynamicTree(4), best_first, Chain()), 9),
    "sps": (language_model, [{}], (Chain(), best_first), 11),
    "uno": (uno, [{"causal": causal, "masks": masks, "family": family}
                  for causal, masks in ((True, 0), (False, 7)) for family in ("llama", "mistral")],
            (Chain(), best_first), 9),
}  # fmt: skip
ALONG = [(name, at) for name, (_, changes, _, _) in ROWS.items() for at in range(len(changes))]
DRAFTED = [(*row, at) for row in ALONG for at in range(len(ROWS[row[0]][2]))]
# of the assistant's builders each once with each target, and with each kind
USUAL = [row for row in DRAFTED if row[0] != "gemma" or (row[1] // 3 + row[1] + row[2]) % 3 == 0]


@pytest.fixture
def case(name, change, tmp_path, monkeypatch):
    for part in SIZES:
        monkeypatch.setattr(f"core.methods.{part}", 2)
    make, changes, _, _ = ROWS[name]
    with torch.no_grad():
        yield make(tmp_path, **changes[change])


def tokens_after(draft, row):
    """The tokens of a row's path, the root's first."""
    return [int(draft.tokens[r]) for r in draft.path(row)]


@pytest.mark.parametrize(("name", "change", "builder"), usually(USUAL, DRAFTED))
def test_every_drafted_nodes_q_equals_a_fresh_forward_along_its_path(name, case, builder):
    drafter, features = case.drafter, case.features(TEXT)
    _, _, builders, nodes = ROWS[name]
    builder, low = builders[builder], 0
    drafter.reset(40)
    for end in ENDS:
        for part in (slice(low, low + 1), slice(low + 1, end)):  # one extension, or two
            if TEXT[part]:
                drafter.extend(TEXT[part], features[part])
        text, root, low = TEXT[:end], TEXT[end + 1], end
        after, session = case.slow(text, features[:end]), drafter.begin(root, 16)
        draft = builder(session, [*text, root], nodes)
        assert draft.nodes == (min(nodes, drafter.max_depth) if builder == Chain() else nodes)
        assert draft.depths.max() > 1 or nodes < 10 or drafter.max_depth == 1
        known = {row: after(tokens_after(draft, row)) for row in {*draft.parents[1:].tolist()}}
        for row, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
            if row:
                expected = float(known[int(parent)][token])
                assert draft.log_q[row] == pytest.approx(expected, abs=case.near)
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
