"""A drafter's diagnosis: its checkpoint looked through, its wiring tried out. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from analysis.drafters import signatures
from analysis.drafters.expected import Expected, reported
from analysis.drafters.lint import Lint, Remark, covered, lint
from analysis.drafters.measuring import Kept
from analysis.drafters.wiring import Alive, Healthy, ProbePlan, Wiring, WiringProbe, to_json
from core.decoding.engine import Engine
from core.errors import UserError
from core.methods.loading import form_of
from core.methods.registry import choose, find_method, shipped, split
from core.models.checkpoint import TokenMapError
from core.models.hub import Source
from core.models.presets import Value
from core.progress import Steps

Hear = Callable[[Sequence[Remark]], None]
FOUND, UNSETTLED = 1, 3  # exit codes; 0: nothing is wrong, 2: bad input


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """``seen``: remarks on what the head can draft of the texts; the others are of the file."""

    method: str
    wiring: Wiring
    remarks: tuple[Remark, ...]
    seen: tuple[Remark, ...]

    @property
    def wrong(self) -> bool:
        """Whether something is named, in the wiring or in the file."""
        every = (*self.remarks, *self.seen)
        return bool(self.wiring.faults) or any(remark.wrong for remark in every)

    @property
    def code(self) -> int:
        """The exit code of a command: 0 where nothing is wrong; FOUND: what is wrong is named;
        UNSETTLED: the drafter is bad, and what is named does not explain it."""
        if self.wiring.verdict == signatures.BETTER:
            return UNSETTLED
        if self.wrong:
            return FOUND
        return UNSETTLED if self.wiring.verdict == signatures.BAD else 0

    def to_json(self) -> dict[str, Any]:
        every = (*self.remarks, *self.seen)
        lint = [{"wrong": remark.wrong, "text": remark.text} for remark in every]
        return {
            "method": self.method,
            "code": self.code,
            "wiring": to_json(self.wiring),
            "checkpoint": lint,
        }


def diagnose(
    engine: Engine,
    method: str,
    prompts: Sequence[str],
    plan: ProbePlan,
    report: Steps,
    *,
    options: Mapping[str, Value] | None = None,
    hear: Hear = lambda remarks: None,
    kept: Kept | None = None,
) -> Diagnosis:
    """``hear`` gets the remarks on the file before the drafter is loaded, and those on a few places
    as soon as they are measured. ``kept``: as for ``analysis.drafters.wiring.WiringProbe``.

    Raises UserError for a method without a drafter, a checkpoint that cannot be loaded, and where
    ``analysis.drafters.wiring.WiringProbe`` does.
    """
    plan.check(len(prompts))
    info = find_method(method).drafter_info
    if info is None:
        raise UserError(f"{method} has no drafter")
    source = engine.checkpoint(info)
    language = engine.prepare()
    file = lint(form_of(info), source.full_folder(), language) if source is not None else Lint()
    hear(file.remarks)
    with suppress(TokenMapError):  # the look through the file has said it; loading mends the map
        engine.check(method)
    drafter = engine.load_drafter(choose(method, options))
    assert drafter is not None  # it has info
    drafted = None if drafter.covered is None else drafter.covered.ids

    first, every = ("the first text's", "the texts'") if len(prompts) > 1 else ("the text's",) * 2

    def alive(found: Alive) -> None:
        seen = covered(drafted, found.mean_p, found.used, file.dead, first)
        hear([Remark(False, found.sentence), *seen])

    layers = kept.layers if kept is not None else None
    expected = None if source is None else _expected(engine, method, source, options, layers)
    who = repr((method, sorted((options or {}).items())))
    parts = (language, drafter, prompts, plan, expected, who, kept, alive)
    found = WiringProbe(*parts).run(report)
    seen = covered(drafted, found.mean_p, found.used, file.dead, every)
    return Diagnosis(method, found, file.remarks, tuple(seen))


def _expected(
    engine: Engine,
    method: str,
    source: Source,
    options: Mapping[str, Value] | None,
    layers: frozenset[int] | None,
) -> Expected | Healthy | None:
    """Return what the training report beside the checkpoint says, or the drafter of its kind that
    ships for the target and reads of these ``layers`` (None: of all); None without either."""
    folder, info = source.full_folder(), find_method(method).drafter_info
    if (found := reported(folder)) is not None or info is None:
        return found
    ours = shipped(info.name, engine.model)
    if ours is None:
        return None
    what = f"the {info.name} drafter that ships for this target"
    if folder.resolve() == ours.resolve():
        return Healthy(what)
    drafter = engine.load_drafter(choose(f"{split(method)[0]}@{ours}", options))
    assert drafter is not None  # as of the method itself
    known = layers is None or layers.issuperset(drafter.layers)
    return Healthy(what, drafter) if known else None
