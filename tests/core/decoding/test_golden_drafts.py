"""Today's builders draft what was recorded on real proposals, bit for bit (tests/golden/drafts)."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from core.drafting.session import FactorisedSession, PathSession
from core.methods.method import Method
from core.rounds.draft import NOT_ASKED, Candidates
from tests import GOLDEN
from tests.helpers.draft_sessions import Tables, TablesSession

FOLDER = GOLDEN / "drafts"
FIXTURE = json.loads((FOLDER / "fixture.json").read_text())
PROPOSALS = dict(np.load(FOLDER / "proposals.npz"))
DRAFTS = dict(np.load(FOLDER / "drafts.npz"))
PATHS = dict(np.load(FOLDER / "paths.npz"))
FIELDS = ("tokens", "parents", "depths", "ranks", "log_q", "scores")


@dataclass(frozen=True)
class Facts:
    name: str = FIXTURE["target"]
    vocabulary: int = FIXTURE["vocabulary"]
    stop_ids: frozenset[int] = frozenset(FIXTURE["stop_ids"])


def fields(arrays, prefix):
    """The arrays whose names begin so, without the beginning."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def session(drafter, width, eager):
    """The recorded proposal as a session that lists ``width`` tokens per depth."""
    proposal = fields(PROPOSALS, f"{drafter}/")
    lists = Candidates(proposal["ids"][:, :width].astype(np.int64), proposal["log_q"][:, :width])
    table = fields(proposal, "table:")
    if not table:
        return FactorisedSession(lists)
    tables = Tables(table["ids"], table["log_q"], table["marginal"], table["candidate"])
    found = TablesSession(tables, eager)
    found.by_depth = lists
    return found


def recorded(drafter, builder):
    """Every budget with the arrays of its draft."""
    arrays = fields(DRAFTS, f"{drafter}/{builder}/")
    ends, lists = arrays.pop("rows").cumsum(), arrays.pop("lists:count", np.zeros(4, int)).cumsum()
    for index, budget in enumerate(FIXTURE["budgets"]):
        yield (
            budget,
            {
                name: np.split(values, lists if name.startswith("lists:") else ends)[index]
                for name, values in arrays.items()
            },
        )


@pytest.mark.parametrize("builder", FIXTURE["builders"])
@pytest.mark.parametrize(
    ("drafter", "eager"),
    [("dflash", False), ("dart", False), ("treeflash", False), ("treeflash", True)],
)
def test_the_drafts_are_those_that_were_recorded(drafter, eager, builder):
    """With ``eager``, every state of the drafter is known from the start."""
    chosen = FIXTURE["builders"][builder]
    method = Method("", drafter, chosen["builder"])
    build = method.make_builder(Facts(), method.resolve(chosen["options"]))
    text = PROPOSALS[f"{drafter}/text"].tolist()
    for budget, expected in recorded(drafter, builder):
        width = max(build.width(budget), FIXTURE["listed"][drafter])
        draft = build(session(drafter, width, eager), text, budget)
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(draft, name), expected.pop(name), name)
        for name, values in draft.notes.items():
            np.testing.assert_array_equal(values, expected.pop(f"note:{name}"), name)
        check_lists(draft, expected)


def check_lists(draft, expected):
    """The lists after the rows. A builder may stop before it asks what follows its last row."""
    if not expected:
        assert draft.proposal.factorised_lists
        return
    assert expected.keys() == {"after", "lists:ids", "lists:log_q"}
    for row, place in enumerate(expected["after"]):
        found = draft.proposal.candidates(row)
        if place < 0:
            assert found is None
        elif found is None:
            assert draft.proposal.after[row] == NOT_ASKED and not draft.children[row]
        else:
            np.testing.assert_array_equal(found.ids, expected["lists:ids"][place])
            np.testing.assert_array_equal(found.log_q, expected["lists:log_q"][place])


class Recorded(PathSession):
    """A recorded session whose q depends on the path: the best tokens after every node that was
    asked, and nothing of the others."""

    def __init__(self, width):
        text = PATHS["mtp/text"].tolist()
        super().__init__(text[-1], int(PATHS["mtp/depths"]), width)
        paths, self.lists = [], {}
        for token, parent, ids, log_q in zip(
            *(PATHS[f"mtp/{name}"] for name in ("tokens", "parents", "ids", "log_q")), strict=True
        ):
            paths.append((*(paths[parent] if parent >= 0 else ()), int(token)))
            self.lists[paths[-1]] = torch.from_numpy(ids).long(), torch.from_numpy(log_q)
        self.asked = []

    def score(self, tokens, parents):
        log_q = torch.full((len(tokens), FIXTURE["vocabulary"]), -torch.inf)
        for row, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
            self.asked.append((*(self.asked[parent] if parent >= 0 else ()), token))
            ids, odds = self.lists[self.asked[-1]]
            log_q[row, ids] = odds
        return log_q


@pytest.mark.parametrize("builder", FIXTURE["paths"]["builders"])
def test_the_drafts_after_whole_paths_are_those_that_were_recorded(builder):
    """Of the MTP head that ships, in one round; a node that was not asked then is not asked now."""
    method = Method("", "mtp", builder)
    build = method.make_builder(Facts(), method.resolve({}))
    for budget in FIXTURE["paths"]["budgets"]:
        expected = fields(PATHS, f"mtp/{builder}/{budget}/")
        width = max(build.width(budget), FIXTURE["paths"]["listed"])
        draft = build(Recorded(width), PATHS["mtp/text"].tolist(), budget)
        for name in FIELDS:
            np.testing.assert_array_equal(getattr(draft, name), expected.pop(name), name)
        assert not expected
