"""A drafter's diagnosis: its checkpoint looked through, its wiring tried out. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.drafters.lint import Lint, Remark, covered, head_ids, lint
from analysis.drafters.measuring import Kept, Report
from analysis.drafters.wiring import Plan, Wiring, probe, to_json
from core.decoding.engine import Engine
from core.errors import UserError
from core.methods.loading import form
from core.methods.registry import choose, find
from core.models.presets import Value


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """``seen``: remarks on what the head can draft of the texts; the others are of the file."""

    method: str
    wiring: Wiring
    remarks: tuple[Remark, ...]
    seen: tuple[Remark, ...]

    @property
    def wrong(self) -> bool:
        every = (*self.remarks, *self.seen)
        return bool(self.wiring.faults) or any(remark.wrong for remark in every)

    def to_json(self) -> dict[str, Any]:
        every = (*self.remarks, *self.seen)
        lint = [{"wrong": remark.wrong, "text": remark.text} for remark in every]
        return {"method": self.method, "wiring": to_json(self.wiring), "checkpoint": lint}


def diagnose(
    engine: Engine,
    method: str,
    prompts: Sequence[str],
    plan: Plan,
    report: Report,
    *,
    options: Mapping[str, Value] | None = None,
    hear: Callable[[Sequence[Remark]], None] = lambda remarks: None,
    kept: Kept | None = None,
) -> Diagnosis:
    """``hear`` gets the remarks on the file before the drafter is loaded. ``kept``: as for
    ``analysis.drafters.wiring.probe``.

    Raises UserError for a method without a drafter, a checkpoint that cannot be loaded, and where
    ``analysis.drafters.wiring.probe`` does.
    """
    plan.check()
    info = find(method).drafter_info
    if info is None:
        raise UserError(f"{method} has no drafter")
    source = engine.checkpoint(info)
    language = engine.prepare()
    file = lint(form(info), source.full_folder(), language) if source is not None else Lint()
    hear(file.remarks)
    engine.check(method)
    drafter = engine.load_drafter(choose(method, options))
    assert drafter is not None  # it has info
    found = probe(language, drafter, prompts, plan, report, kept)
    seen = covered(head_ids(drafter), found.mean_p, found.used, file.dead)
    return Diagnosis(method, found, file.remarks, tuple(seen))
