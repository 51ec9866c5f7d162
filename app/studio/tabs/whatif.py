"""The tab What-if: sliders over a collected text; every setting is simulated, no model runs.

A file is opened once and memory-mapped. A simulation is reused while its budget changes, since it
searches every position once. numba and the tables load on first use, torch never.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Container, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from app.studio.background import Collecting
from app.studio.components import Studio, Tab, for_upload, view
from app.studio.examples import Examples
from app.studio.files import graph_file, tree_file
from app.studio.methods import form_options
from app.studio.questions import Inches, Question, Route, Whole
from app.studio.routes import PARQUET
from app.studio.tabs.whatif_answers import (
    costs_of,
    curve_figures,
    example_cost,
    lengths_figure,
    read_cost,
    speeds,
)
from app.view.drawing import tree_drawing
from app.view.explanation import Explainer
from app.view.rounds import round_view
from core import ASSETS
from core.chat import last_message
from core.errors import UserError
from core.memory import Recent
from core.methods.method import Option, Range
from core.methods.names import BUILDERS, DEFAULT, METHODS
from core.methods.registry import find_method, split
from core.models.presets import Value
from core.rounds.round import Round
from core.traces.schema import Header
from core.visible import flowing, visible

if TYPE_CHECKING:
    from analysis.collected.collection import Collection, DrafterLimits
    from analysis.collected.whatif import SimulatedRun, Simulation
    from analysis.experiments.cost import Cost
    from analysis.frames import Frame

SHIPPED = ASSETS / "collected"
OPEN_FILES, OPEN_SIMULATIONS = 12, 24
KEPT = 6  # curves beside a setting's own
TEXTS = 8  # that a curve is drawn over
BUDGETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SLIDER_STEPS = 128  # a slider of a longer range takes its beginning


def build(studio: Studio) -> None:
    simulations = Simulations(studio.examples)
    collecting = Collecting(studio.runs, studio.methods, simulations.add)
    opens = {
        "open": for_upload(lambda file: {"file": simulations.add(file)}),
        "open_cost": for_upload(simulations.add_cost),
    }
    common = studio.routes.of_runs()
    named = {name: common[name] for name in ("example", "start", "runs", "updates", "stop")}
    view("whatif", "ds-w-scope", simulations.routes() | collecting.routes() | named | opens)


TAB = Tab("whatif", "What-if", build)


class OfFile(Question, frozen=True):
    file: str | None = None


class Setting(OfFile, frozen=True):
    """A method with its options on a collected text. ``name``: what the page calls it."""

    name: str | None = None
    method: str | None = None
    options: dict[str, Any] | None = None

    def with_fields_of(self, other: Setting) -> Setting:
        """This setting with the other one's name and whatever else that one states."""
        stated = {name: getattr(other, name) for name in Setting.__struct_fields__}
        stated = {name: value for name, value in stated.items() if value is not None}
        return msgspec.structs.replace(self, **(stated | {"name": other.name}))


class Simulate(Setting, frozen=True):
    """``place``: of the text, whose round is shown."""

    budget: Whole | None = None
    place: Whole = 0


class ExportedText(Simulate, frozen=True):
    form: str | None = None


class PicturedText(Simulate, frozen=True):
    inches: Inches | None = None


class CurveAsked(Setting, frozen=True):
    """kept  other settings, whose curves are drawn beside this one's
    more  texts that the curves are drawn over, beside the one on view
    cost  an opened result of ``cost``
    """

    kept: tuple[Setting | None, ...] = ()
    more: tuple[str | None, ...] = ()
    cost: str | None = None


class Simulations:
    """Open files and the simulations made of them."""

    def __init__(self, examples: Examples):
        self._examples, self._lock = examples, threading.Lock()
        self._files: Recent[Collection] = Recent(OPEN_FILES)
        self._simulations: Recent[Simulation] = Recent(OPEN_SIMULATIONS)
        self._costs: Recent[Cost] = Recent(OPEN_FILES)

    def routes(self) -> dict[str, Route[Any]]:
        return {
            "files": Route(Question, lambda _: {"files": self._list()}),
            "about": Route(OfFile, self._about),
            "simulate": Route(Simulate, self._simulate),
            "curve": Route(CurveAsked, self._curve),
            "draw": Route(PicturedText, self._draw),
            "export": Route(ExportedText, self._export),
            "parquet": PARQUET,
        }

    # ── files ────────────────────────────────────────────────────────────────────────────────────

    def add(self, file: Path, name: str = "") -> str:
        """Open a file, unless one is open by this name; its name from now on, which is a new one
        where none is given. Raises UserError for a file that is not a collected text."""
        from analysis.collected.collection import Collection

        name = name or secrets.token_urlsafe(12)
        with self._lock:
            self._files.get(name, lambda: Collection.load(file))
        return name

    def add_cost(self, file: Path) -> dict[str, str]:
        """Open an uploaded result of ``cost``; its name from now on, and what it is of.

        Raises UserError for any other file, or a method that does not come with Draftscope.
        """
        cost = read_cost(file)
        with self._lock:
            name = secrets.token_urlsafe(12)
            self._costs.get(name, lambda: cost)
        return {"cost": name, "of": costs_of(cost)}

    def _shipped(self) -> dict[str, Path]:
        return {file.stem: file for file in sorted(SHIPPED.glob("*.safetensors"))}

    def _list(self) -> list[dict[str, str]]:
        return [{"name": name, "title": _titled(name)} for name in self._shipped()]

    def _file(self, name: str | None) -> Collection:
        from analysis.collected.collection import Collection

        if name is None:
            raise UserError("there is no such collected text")

        def shipped() -> Collection:
            if (path := self._shipped().get(name)) is None:
                raise UserError("this collected text is no longer on the server: open it again")
            return Collection.load(path)

        with self._lock:
            return self._files.get(name, shipped)

    def _cost(self, name: str | None) -> Cost | None:
        """The opened result of that name; None, and so the estimate, where none is named."""
        if name is None:
            return None

        def gone() -> Cost:
            raise UserError("this result of cost is no longer on the server: open it again")

        with self._lock:
            return self._costs.get(name, gone)

    def _about(self, question: OfFile) -> Any:
        """The text, and every method with its knobs."""
        file = self._file(question.file)
        tokens = file.tokens.tolist()[file.answer : file.end]
        return {
            "model": visible(file.header.name, 120),
            "prompt": flowing(last_message(file.header.prompt_text), 2000),
            "given": flowing(file.given, 600),
            "text": [flowing(file.piece(token), 400) for token in tokens],
            "methods": [_method(name, file.limits(name)) for name in _methods(file)],
            "method": DEFAULT,
            "figures": curve_figures({}, None) | {"lengths": lengths_figure("", ())},
        }

    # ── what would have been ─────────────────────────────────────────────────────────────────────

    def _simulation(self, question: Setting) -> Simulation:
        from analysis.collected.whatif import Simulation

        name, method = question.file, question.method
        file = self._file(name)
        if method is None or method not in _methods(file):
            raise UserError("this text was not collected for that method")
        options = _options(method, question.options)
        key = (name, method, *sorted(options.items()))
        with self._lock:
            return self._simulations.get(key, lambda: Simulation(file, method, options))

    def _run(self, question: Simulate) -> tuple[Simulation, SimulatedRun, Round]:
        """The run of one budget, and its round at a place of the text."""
        simulation, budget = self._simulation(question), question.budget
        with self._lock:
            run = simulation.run(budget)
            start = _start(simulation, run, question.place)
            record = simulation.round(start, budget)
        return simulation, run, replace(record, index=run.starts.index(start))

    def _simulate(self, question: Simulate) -> Any:
        simulation, run, record = self._run(question)
        first = simulation.collection.answer
        explainer = Explainer.of(_header(simulation, run.budget))
        drawn = round_view(record, explainer, first=record.position == first)
        name = f"{_called(question)}, B = {run.budget}"
        return _run_json(run) | {
            "round": drawn, "starts": [s - first for s in run.starts],
            "figures": {"lengths": lengths_figure(name, run.lengths)},
        }  # fmt: skip

    def _draw(self, question: PicturedText) -> Any:
        """The draft that is shown, whole, for a paper."""
        simulation, run, record = self._run(question)
        explainer = Explainer.of(_header(simulation, run.budget))
        draw = partial(tree_drawing, record, explainer, legend=True)
        return tree_file(simulation.method, f"round-{record.number}", draw, question.inches)

    def _export(self, question: ExportedText) -> Any:
        """The draft that is shown, as DOT or GraphML."""
        simulation, _, record = self._run(question)
        return graph_file(record, question.form, simulation.method)

    def _curve(self, question: CurveAsked) -> Any:
        """τ of every budget of this setting and of those kept, and the speed that may be expected
        of this one."""
        simulation, cost = self._simulation(question), self._cost(question.cost)
        settings: dict[str, Setting] = {_called(question): question}
        for each in [each for each in question.kept if each is not None][:KEPT]:
            kept = question.with_fields_of(each)
            if kept not in settings.values():
                settings[_free(_called(kept), settings)] = kept
        curves = {name: self._runs(self._simulation(each)) for name, each in settings.items()}
        runs, texts = next(iter(curves.values())), self._texts(question)
        over = {name: self._over(each, texts) for name, each in settings.items()} if texts else None
        with self._lock:
            found = speeds(simulation, runs, cost or example_cost(self._examples, simulation))
        drawn = curve_figures(curves, found, costs_of(cost) if cost else None, over)
        return {"figures": drawn, "cost": found}

    def _runs(self, simulation: Simulation) -> list[SimulatedRun]:
        with self._lock:
            return simulation.curve(BUDGETS)

    def _texts(self, question: CurveAsked) -> dict[str, str]:
        """The text that is shown and those chosen beside it: what each is called, and its file.
        Empty where none is chosen. Raises UserError for texts of several targets."""
        asked = [question.file, *question.more]
        files = {str(name): self._file(name) for name in asked[:TEXTS]}
        if len(files) < 2:
            return {}
        if len({file.header.name for file in files.values()}) > 1:
            raise UserError("these texts are of several targets: choose those of one")
        found: dict[str, str] = {}
        for name, file in files.items():
            prompt = visible(last_message(file.header.prompt_text), 40)
            title = _titled(name) if name in self._shipped() else prompt
            found[_free(title, found)] = name
        return found

    def _over(self, question: Setting, texts: Mapping[str, str]) -> Frame:
        """A setting's curve over several texts. Raises UserError where one does not hold it."""
        from analysis.collected.many_texts import whatif_texts

        runs = {}
        for title, name in texts.items():
            if question.method not in _methods(self._file(name)):
                raise UserError(f"the text “{title}” was not collected for this method")
            there = msgspec.structs.replace(question, file=name)
            runs[title] = self._runs(self._simulation(there))
        return whatif_texts(runs)


def _titled(name: str) -> str:
    """Return the page's name for a text that ships."""
    return name.replace("-", " ")


def _start(simulation: Simulation, run: SimulatedRun, place: int) -> int:
    """Where the round at a place of the answer begins."""
    first = simulation.collection.answer
    return max((start for start in run.starts if start - first <= place), default=first)


def _run_json(run: SimulatedRun) -> dict[str, Any]:
    return {
        "budget": run.budget, "tau": run.tau, "rounds": run.rounds,
        "lengths": list(run.lengths), "tokens": run.new_tokens, "exact": run.exact,
        "note": flowing(run.note, 600),
    }  # fmt: skip


def _called(question: Setting) -> str:
    """Return the page's name for a setting; where it gives none, the method and its options."""
    options = (f"{name} {value}" for name, value in (question.options or {}).items())
    return visible(question.name or ", ".join([str(question.method), *options]), 80)


def _free(name: str, taken: Container[str]) -> str:
    """Return the name, or the first number of it that is not taken."""
    numbered = (f"{name} ({n})" for n in count(2))
    return name if name not in taken else next(each for each in numbered if each not in taken)


def _header(simulation: Simulation, budget: int) -> Header:
    """A header as a real run of the simulated settings would have it."""
    about = simulation.collection.header
    settings = {"budget": budget, "options": simulation.options}
    return Header(simulation.method, settings, {"name": about.name}, about.prompt_text, ())


# ── methods and their knobs ──────────────────────────────────────────────────────────────────────


def _methods(file: Collection) -> list[str]:
    """List the methods that the file can answer: its own, then their drafters with any builder."""
    drafters = dict.fromkeys((find_method(n).drafter, split(n)[1]) for n in file.methods)
    return [
        *file.methods,
        *(
            f"{drafter}+{builder}{'@' if weights else ''}{weights}"
            for drafter, weights in drafters
            for builder in BUILDERS
        ),
    ]


def _method(name: str, limits: DrafterLimits) -> dict[str, Any]:
    method = find_method(name)
    knobs = [
        knob(option, limits.setting(option.name))
        for option in form_options(method)
        # other drafter options change what the drafter says, which the file does not hold
        if option not in method.drafter_options or option.collect is not None
    ]
    title = method.title if name in METHODS else name
    return {"name": name, "title": title, "budget": method.budget, "knobs": knobs}


def knob(option: Option, collected: Value | None = None) -> dict[str, Any]:
    """An option as a number with a slider, or a tick, by its declaration.

    ``collected`` is the option's value in the file, and then the largest. ``log``: the slider moves
    in powers of ten.
    """
    made = {"name": option.name, "label": option.label, "help": option.help}
    if option.type is bool or option.range is None:
        return made | {"flag": option.type is bool, "value": option.default}
    own, value = option.range, cast(float, option.default)
    if collected is not None:
        own, value = replace(own, high=cast(float, collected)), min(value, cast(int, collected))
    ends = {"min": own.low, "max": own.high if math.isfinite(own.high) else None}
    slider = _powers(own, value) if own.log else _beginning(own, value)
    return made | ends | {"value": value, "step": own.step, "log": own.log, "slider": slider}


def _powers(own: Range, value: float) -> list[float]:
    """A slider's ends and step, as exponents of ten."""
    return [math.floor(math.log10(value)) - 2, math.floor(math.log10(own.high)) - own.below, 1]


def _beginning(own: Range, value: float) -> list[float]:
    """A slider's ends and step: the range, or of a long one its beginning, with the default in its
    first quarter. The number beside the slider takes all of it."""
    if own.high - own.low <= SLIDER_STEPS * own.step:
        return [own.low, own.high, own.step]
    end = max(own.low + SLIDER_STEPS / 4 * own.step, 4 * value)
    return [own.low, min(own.high, round(end, 6)), own.step]


def _options(method: str, sent: Mapping[str, Any] | None) -> dict[str, Value]:
    """The method's own options among what a page sent. Raises UserError for a bad value."""
    values = sent or {}
    return {
        option.name: option.read(values[option.name])
        for option in form_options(find_method(method))
        if isinstance(values.get(option.name), (bool, int, float))
    }
