"""A denoising run as plain data: what a person asks for, and the settings. Light: never torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.decoding.request import check_temperature
from core.diffusion.draft_graph import DraftGraph
from core.diffusion.graph_files import load_graph
from core.diffusion.pace import ONE_BY_ONE, Pace
from core.errors import UserError
from core.ranges import Range
from core.traces.schema import MAX_BLOCK

PLAIN, SPIFFY = "denoise", "spiffy"  # the methods' names in a header
MAX_LENGTH = 1 << 14
RANKED_TOKENS = 5  # that a record ranks at every position: as many as the shipped graphs read


@dataclass(frozen=True)
class DenoiseSettings:
    """How one text is denoised.

    length  new tokens, a multiple of ``block``
    ahead   confidence that a position needs to be unmasked before the first masked one (see
            ``core.diffusion.ranking``)
    go_on   also denoise the blocks after the one that holds the first end-of-text
    timed   synchronise the device after every stage
    width   tokens ranked and recorded per position; a graph that needs more gets more
    """

    length: int = 128
    block: int = 32
    pace: Pace = ONE_BY_ONE
    temperature: float = 0.0
    seed: int = 0
    ahead: float = 0.0
    go_on: bool = False
    timed: bool = True
    width: int = RANKED_TOKENS

    def check(self) -> None:
        """Raises UserError for a value out of range."""
        self.pace.check()
        Range(1, MAX_LENGTH).check("the length in tokens", self.length)
        Range(1, MAX_BLOCK).check("the block's positions", self.block)
        if self.length % self.block:
            raise UserError(
                f"the length must be a multiple of the block: {self.length} is not one of "
                f"{self.block}"
            )
        if self.pace.threshold is None and self.pace.tokens > self.block:
            raise UserError(
                f"{self.pace.tokens} tokens a step are more than the block's {self.block} positions"
            )
        check_temperature(self.temperature)
        Range(0, 1).check("ahead", self.ahead)

    def to_json(self) -> dict[str, Any]:
        """The settings as a trace's header holds them."""
        return {
            "length": self.length,
            "block": self.block,
            "pace": self.pace.to_json(),
            "temperature": self.temperature,
            "seed": self.seed,
            "ahead": self.ahead,
            "go_on": self.go_on,
        }


@dataclass(frozen=True)
class DenoiseRequest:
    """One denoising run.

    block  positions of a block; None: as many as the model was made for
    ahead  see ``DenoiseSettings``; None: the model's own
    graph  the draft graph: its file, or D, the size of one that ships for the model; None drafts
           nothing
    """

    prompt: str
    length: int = 128
    block: int | None = None
    pace: Pace = ONE_BY_ONE
    graph: str | None = None
    temperature: float = 0.0
    seed: int = 0
    ahead: float | None = None
    go_on: bool = False

    @property
    def method(self) -> str:
        return SPIFFY if self.graph else PLAIN

    def check(self, model: str) -> None:
        """Raises UserError for what no model can run, before the one of this name is loaded."""
        self.settings(min(self.length, MAX_BLOCK), 0.0)
        self.draft_graph(model)

    def settings(self, block: int, ahead: float) -> DenoiseSettings:
        """The run's settings, given the model's own block and ahead. Raises UserError if out of
        range."""
        settings = DenoiseSettings(
            self.length,
            block if self.block is None else self.block,
            self.pace,
            self.temperature,
            self.seed,
            ahead if self.ahead is None else self.ahead,
            self.go_on,
        )
        settings.check()
        return settings

    def draft_graph(self, model: str) -> DraftGraph | None:
        """The draft graph for the model of this name. Raises UserError when there is none."""
        return load_graph(self.graph, model, self.pace) if self.graph else None
