"""The settings that a person asks for in one run, as plain data. Light: never torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from core.errors import UserError
from core.methods.method import Value, lazy
from core.methods.names import DEFAULT
from core.methods.registry import Chosen, find_method
from core.ranges import Range
from core.rounds.draft import MAX_BUDGET
from core.rounds.round import GREEDY, Sampling


@dataclass(frozen=True)
class Settings:
    """One run's settings. ``timed`` synchronises the device after every stage."""

    budget: int = 64
    max_new_tokens: int = 128
    sampling: Sampling = GREEDY
    timed: bool = True

    def check(self) -> None:
        """Raises UserError with one sentence when a value is out of range."""
        s = self.sampling
        check_budget(self.budget)
        Range(1).check("max new tokens", self.max_new_tokens)
        check_temperature(s.temperature)
        if s.top_k < 0:
            raise UserError(f"top-k must be 0 (off) or more, not {s.top_k}")
        Range(0, 1, above=True).check("top-p", s.top_p)


def check_budget(budget: int) -> None:
    """Raises UserError for a draft budget no run can have."""
    Range(1, MAX_BUDGET).check("the budget", budget)


def check_temperature(temperature: float) -> None:
    """Raises UserError for a temperature that no logits can be divided by."""
    if temperature != 0 and not 1e-3 <= temperature <= 1e3:
        raise UserError(
            f"the temperature must be 0 (greedy) or from 0.001 to 1000, not {temperature}"
        )


@dataclass(frozen=True, eq=False)
class ResolvedRun:
    """A request that can be run: its method with every option, and its settings in range."""

    chosen: Chosen
    settings: Settings


@dataclass(frozen=True)
class RunRequest:
    """One run. ``budget`` None is the method's default.

    options  (name, value) pairs of the method's own options
    """

    prompt: str
    method: str = DEFAULT
    budget: int | None = None
    max_new_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    timed: bool = True
    options: tuple[tuple[str, Value], ...] = ()

    def check(self) -> None:
        """Raises UserError as ``resolved``."""
        _ = self.resolved

    @cached_property
    def resolved(self) -> ResolvedRun:
        """Raises UserError for an unknown method or a value out of range."""
        method = find_method(self.method)
        budget = method.budget if self.budget is None else self.budget
        sampling = Sampling(self.temperature, self.top_k, self.top_p, self.seed)
        settings = Settings(budget, self.max_new_tokens, sampling, self.timed)
        settings.check()
        options = method.resolve(dict(self.options))
        return ResolvedRun(Chosen(self.method, method, options), settings)

    @property
    def keeps_text(self) -> bool:
        """Whether it must write plain decoding's text, token for token: above temperature 0 some
        verification rules keep the distribution only. Raises UserError as ``resolved``."""
        chosen, settings = self.resolved.chosen, self.resolved.settings
        rule = chosen.method.rule_for(chosen.options)
        return settings.sampling.greedy or not rule or bool(lazy(rule)(settings.sampling).identity)
