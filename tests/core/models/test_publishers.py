"""Checkpoints that publishers' own classes wrote: they open, and q is what those classes say.

``tests/golden/publishers.py`` made both, in an environment with the publisher's package.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from analysis.drafters.lint import lint
from app.cli import main
from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.drafting.session import sessions_along
from core.methods.loading import form_of
from core.methods.registry import choose, find_method
from core.rounds.round import new_tokens
from tests import GOLDEN
from tests.helpers.timing import amount
from tests.helpers.toys_on_disk import write_tokenizer

WRITTEN = GOLDEN / "published"
FORMS = sorted(f"{file.parent.name}/{file.stem}" for file in WRITTEN.glob("*/*.safetensors"))
FORMS.remove("target/model")
READS = {
    "specforge/eagle3": "after layers 1, 23, 44 if the target has 48",  # by the target's count
    "specforge/peagle": "after layers 1, 23, 44 if the target has 48",
    "speculators/eagle3-embedding": "the embedding and after layers 3, 5, 7",
}
CLOSE = 1e-4  # nats
NEW = amount(10, 20)  # tokens


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("publishers") / "target"
    shutil.copytree(WRITTEN / "target", folder)
    write_tokenizer(folder)
    return folder


def kind_of(form: str) -> str:
    return form.partition("/")[2].partition("-")[0]


def method_of(form: str) -> str:
    """A method that drafts with this kind."""
    return {"dflash": "ddtree"}.get(kind_of(form), kind_of(form))


@cache
def engine_of(form: str, target: Path) -> Engine:
    return Engine(str(target), "cpu", str(WRITTEN / form))


def apart(found: torch.Tensor, golden: torch.Tensor) -> float:
    """The largest difference of two log q, which draft the same tokens."""
    drafted = golden > -torch.inf
    assert torch.equal(found > -torch.inf, drafted)
    return float((found[drafted] - golden[drafted]).abs().max())


@pytest.mark.parametrize("form", FORMS)
def test_q_is_what_the_publishers_class_says(form, target):
    """At every depth along a text: read at once, and asked of a run's sessions."""
    drafter = engine_of(form, target).load_drafter(choose(method_of(form)))
    assert drafter is not None
    golden = load_file(WRITTEN / f"{form}.safetensors")
    tokens, features, anchors = (golden[name] for name in ("tokens", "features", "anchors"))
    features, log_q = features.float(), golden["log_q"]
    depths = log_q.shape[1]
    at_once = drafter.log_q_at(tokens, features, anchors)
    assert at_once is not None and apart(at_once[:, :depths], log_q) < CLOSE
    text = tokens.tolist()
    sessions = sessions_along(drafter, text, features, anchors.tolist(), width=8)
    for each, (root, session) in zip(log_q, sessions, strict=True):
        found = session.log_q(text[root : root + depths])
        assert found is not None and apart(found, each) < CLOSE


@pytest.mark.parametrize("form", FORMS)
def test_its_kind_is_told_by_its_config_and_its_file_has_no_fault(form, target, capsys):
    assert main(["model", "doctor", str(WRITTEN / form)]) == 0
    said = capsys.readouterr().out
    assert f"opens as a drafter: {kind_of(form)}, for a target of hidden size 16, " in said
    reads = READS.get(form, READS.get(form.partition("-")[0], "after layers 1, 3, 5"))
    assert f"; reads {reads}" in said
    info, language = find_method(method_of(form)).drafter_info, engine_of(form, target).prepare()
    assert info is not None
    found = lint(form_of(info), WRITTEN / form, language)
    assert found.remarks and not [remark for remark in found.remarks if remark.wrong]


@pytest.mark.parametrize("form", FORMS)
def test_a_run_writes_the_targets_text(form, target):
    engine = engine_of(form, target)
    texts = [
        new_tokens(list(engine.start(RunRequest("golden", method, None, NEW))))
        for method in ("ar", method_of(form))
    ]
    assert texts[0] == texts[1] and len(texts[0]) == NEW
