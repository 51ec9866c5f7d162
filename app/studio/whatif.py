"""The what-if view's answers: collected texts, and one simulated run after the other.

A file is opened once and memory-mapped; a simulation is kept while somebody turns its knobs, since
it works out every position once. numba and the tables load on first use, torch never.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from app.studio.answers import Asked, get, parquet, whole
from app.studio.choices import LABELS
from app.view.rounds import round_view
from app.view.text import flowing, visible
from core import ASSETS
from core.errors import UserError
from core.methods.registry import BUILDERS, RECIPES, Value, recipe, settle

if TYPE_CHECKING:
    from analysis.collected import Collected
    from analysis.cost import Cost
    from analysis.whatif import Simulation, WhatIf

SHIPPED = ASSETS / "collected"
KEPT_FILES, KEPT_RUNS = 12, 24
BUDGETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
RANGES: dict[str, tuple[float, float, float]] = {
    "beam": (1, 64, 1),
    "ngram_weight": (0, 2, 0.05),
    "gain": (0, 1, 0.01),
    "width": (1, 64, 1),
}  # from, to, step of a knob; candidates and siblings go as far as the file


Thing = TypeVar("Thing")


class Kept(OrderedDict[Any, Thing]):
    """The last ``most`` things that were used; the least recently used goes first."""

    def __init__(self, most: int):
        super().__init__()
        self._most = most

    def used(self, name: object) -> Thing | None:
        if name in self:
            self.move_to_end(name)
        return self.get(name)

    def keep(self, name: object, thing: Thing) -> Thing:
        self[name] = thing
        while len(self) > self._most:
            self.popitem(last=False)
        return thing


class WhatIfs:
    """Open files and the simulations made of them."""

    def __init__(self, folder: Path = SHIPPED):
        self._folder, self._lock = folder, threading.Lock()
        self._files: Kept[Collected] = Kept(KEPT_FILES)
        self._made: Kept[Simulation] = Kept(KEPT_RUNS)
        self._costs: Kept[Cost] = Kept(KEPT_FILES)

    def functions(self) -> list[Callable[[Asked], Any]]:
        def files(asked: Asked) -> Any:
            return {"files": self._listed()}

        def about(asked: Asked) -> Any:
            return self._about(get(asked, "file"))

        def simulate(asked: Asked) -> Any:
            return self._simulate(asked)

        def curve(asked: Asked) -> Any:
            return self._curve(asked)

        def take(asked: Asked) -> Any:
            return self._take(asked)

        return [files, about, simulate, curve, take, parquet]

    def add(self, file: Path) -> str:
        """Open an uploaded file; its name from now on. Raises UserError for any other file."""
        from analysis.collected import Collected

        try:
            opened = Collected.load(file)
        except UserError as error:
            raise UserError(str(error).replace(str(file), "this file")) from None
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._files.keep(name, opened)
        return name

    def add_cost(self, file: Path) -> dict[str, str]:
        """Open an uploaded result of ``cost``; its name from now on, and what it is of.

        Raises UserError for any other file, and for a method that nobody here knows.
        """
        from app.studio.costs import read_cost

        cost = read_cost(file)
        title = recipe(cost.method).title
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._costs.keep(name, cost)
        return {"cost": name, "of": f"{title} on {visible(cost.model, 120)}"}

    # ── what there is ────────────────────────────────────────────────────────────────────────────

    def _shipped(self) -> dict[str, Path]:
        return {file.stem: file for file in sorted(self._folder.glob("*.safetensors"))}

    def _listed(self) -> list[dict[str, str]]:
        return [{"name": name, "title": name.replace("-", " ")} for name in self._shipped()]

    def _file(self, name: object) -> Collected:
        from analysis.collected import Collected

        if not isinstance(name, str):
            raise UserError("there is no such collected text")
        with self._lock:
            if (opened := self._files.used(name)) is not None:
                return opened
            if (path := self._shipped().get(name)) is None:
                raise UserError("this collected text is no longer on the server: open it again")
            return self._files.keep(name, Collected.load(path))

    def _cost(self, name: object) -> Cost | None:
        """The opened result of that name; None, and so the estimate, where none is named."""
        if name is None:
            return None
        with self._lock:
            cost = self._costs.used(name) if isinstance(name, str) else None
        if cost is None:
            raise UserError("this result of cost is no longer on the server: open it again")
        return cost

    def _about(self, name: object) -> dict[str, Any]:
        """The text, and every method with its knobs."""
        file = self._file(name)
        tokens = file.tokens.tolist()[file.answer : file.end]
        return {
            "model": visible(file.header.name, 120),
            "prompt": flowing(file.header.prompt_text, 2000),
            "text": [flowing(file.piece(token), 400) for token in tokens],
            "methods": [self._method(file, each) for each in _methods(file)],
        }  # fmt: skip

    def _method(self, file: Collected, name: str) -> dict[str, Any]:
        chosen, limits = recipe(name), file.limits(name)
        most = {"candidates": limits.candidates, "siblings": limits.siblings}
        knobs = []
        for option, usual in chosen.defaults.items():
            if isinstance(usual, str) or option == "temperature":
                continue
            low, high, step = RANGES.get(option, (1, max(1, most.get(option, 64)), 1))
            usual = min(usual, most[option]) if most.get(option) else usual
            knobs.append({
                "name": option, "label": LABELS.get(option, option.replace("_", " ")),
                "flag": isinstance(usual, bool), "value": usual, "min": low, "max": high,
                "step": step,
            })  # fmt: skip
        return {"name": name, "title": chosen.title if name in RECIPES else name,
                "budget": chosen.budget, "knobs": knobs}  # fmt: skip

    # ── what would have been ─────────────────────────────────────────────────────────────────────

    def _simulation(self, asked: Asked) -> Simulation:
        from analysis.whatif import Simulation

        file, method = self._file(get(asked, "file")), get(asked, "method")
        if method not in _methods(file):
            raise UserError("this text was not collected for that method")
        options = _options(str(method), get(asked, "options"))
        key = (get(asked, "file"), method, *sorted(options.items()))
        with self._lock:
            made = self._made.used(key)
            return made or self._made.keep(key, Simulation(file, str(method), options))

    def _simulate(self, asked: Asked) -> dict[str, Any]:
        """The run of one budget, and the round that stands at a place of the text."""
        simulation, place = self._simulation(asked), whole(get(asked, "place")) or 0
        budget = whole(get(asked, "budget"))
        with self._lock:
            found = simulation.run(budget)
            first, start = simulation.collected.answer, _start(simulation, found, place)
            shown = simulation.round(start, budget)
        view = round_view(shown, first=start == first)
        return _told(found) | {"round": view, "starts": [s - first for s in found.starts]}

    def _take(self, asked: Asked) -> dict[str, Any]:
        """The draft that is shown, as DOT or GraphML."""
        from app.studio.saving import of_round

        simulation, place = self._simulation(asked), whole(get(asked, "place")) or 0
        budget = whole(get(asked, "budget"))
        with self._lock:
            found = simulation.run(budget)
            shown = simulation.round(_start(simulation, found, place), budget)
        return of_round(shown, get(asked, "form"), simulation.method)

    def _curve(self, asked: Asked) -> dict[str, Any]:
        """τ of every budget, and the speed that may be expected of it."""
        from app.studio.costs import speeds

        simulation, measured = self._simulation(asked), self._cost(get(asked, "cost"))
        with self._lock:
            runs = simulation.curve(BUDGETS)
            cost = speeds(simulation, runs, measured)
        return {"points": [_told(run) for run in runs], "cost": cost}


def _start(simulation: Simulation, found: WhatIf, place: int) -> int:
    """Where the round begins that stands at a place of the answer."""
    first = simulation.collected.answer
    return max((start for start in found.starts if start - first <= place), default=first)


def _told(found: WhatIf) -> dict[str, Any]:
    return {
        "budget": found.budget, "tau": found.tau, "rounds": found.rounds,
        "lengths": list(found.lengths), "tokens": found.new_tokens, "exact": found.exact,
        "note": flowing(found.note, 600),
    }  # fmt: skip


def _methods(file: Collected) -> list[str]:
    """What the file can answer: its listed methods, then their drafters with other builders."""
    kinds = [recipe(name).drafter for name in file.methods]
    drafters = [kind for kind in dict.fromkeys(kinds) if isinstance(kind, str)]
    return [*file.methods, *(f"{kind}+{builder}" for kind in drafters for builder in BUILDERS)]


def _options(method: str, given: object) -> dict[str, Value]:
    """The method's own options among what a page sent. Raises UserError for a bad value."""
    defaults, options = recipe(method).defaults, given if isinstance(given, dict) else {}
    kept: dict[str, Value] = {}
    for name, usual in defaults.items():
        value = options.get(name)
        if isinstance(value, (bool, int, float)) and not isinstance(usual, str):
            kept[name] = int(value) if type(usual) is int and float(value).is_integer() else value
    settle(method, kept)
    return kept
