"""What the studio needs of an engine, and the real one, imported only when it is loaded."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Protocol

from app.commands.common import quiet_libraries
from core.diffusion.graph import ONE_BY_ONE, PLAIN, SPIFFY, Pace
from core.errors import UserError
from core.methods.registry import Value
from core.models import presets
from core.models.embedded import NAME, Progress
from core.rounds.round import Round
from core.traces.schema import Header

if TYPE_CHECKING:
    from core.decoding.engine import Run
    from core.diffusion.models import DiffusionLanguage

Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Ask:
    """One run, as the page asks for it; ``core.decoding.engine.RunRequest`` without torch.

    options  (name, value) pairs of the method's own options
    """

    prompt: str
    method: str = "ddtree"
    budget: int = 64
    max_new_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    options: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True)
class DenoiseAsk:
    """One denoising run, as the page asks for it; ``core.diffusion.run`` without torch.

    block  positions of a block; None: as many as the model was made for
    nodes  D of the calibrated draft graph; None: plain denoising
    """

    prompt: str
    length: int = 128
    block: int | None = None
    pace: Pace = ONE_BY_ONE
    nodes: int | None = None
    temperature: float = 0.0
    seed: int = 0

    @property
    def method(self) -> str:
        return SPIFFY if self.nodes else PLAIN


AnyAsk = Ask | DenoiseAsk


class Started(Protocol):
    """A started run: its header now, its rounds as they are decoded."""

    @property
    def header(self) -> Header: ...

    def __iter__(self) -> Generator[Round, None, None]: ...


class StudioEngine(Protocol):
    """Loads once, then starts one run at a time."""

    def prepare(self, report: Report) -> None:
        """Raises UserError, with one sentence, when it cannot be loaded."""
        ...

    def start(self, ask: AnyAsk) -> Started: ...


@dataclass(frozen=True)
class ModelChoice:
    """What the studio decodes with, as ``core.decoding.engine.Engine`` takes it.

    A diffusion model's preset takes the embedded denoiser's place in Denoise; nothing else runs.
    """

    model: str = NAME
    device: str = "auto"
    drafter: str | None = None
    template: Mapping[str, Value] = field(default_factory=dict)

    @property
    def denoiser(self) -> str:
        return self.model if presets.find(self.model).diffusion else NAME


class LiveEngine:
    """``core.decoding.engine.Engine`` with the probe watching; torch is imported by ``prepare``."""

    def __init__(self, choice: ModelChoice):
        self._choice = choice
        self._engine = None
        self._denoiser: DiffusionLanguage | None = None

    def prepare(self, report: Report) -> None:
        report(Progress("starting torch", None))
        quiet_libraries()
        from core.decoding.engine import Engine

        choice = self._choice
        if choice.denoiser == choice.model != NAME:
            self._loaded_denoiser(report)
            return
        engine = Engine(choice.model, choice.device, choice.drafter, choice.template)
        engine.prepare(report)
        for name in ("ddtree", "ar"):
            try:
                report(Progress("loading the drafter", None))
                engine.method(name)
            except UserError:
                continue  # said when somebody starts a run that needs it; plain decoding works
        self._engine = engine

    def start(self, ask: AnyAsk) -> Started:
        from analysis.probe import observe
        from core.decoding.engine import RunRequest

        if isinstance(ask, DenoiseAsk):
            return _LiveRun(self._denoise(ask))
        if self._engine is None:
            raise UserError(f"{self._choice.model} is a diffusion model: it runs in Denoise")
        return _LiveRun(self._engine.start(RunRequest(**asdict(ask)), observe))

    def _denoise(self, ask: DenoiseAsk) -> Run:
        """The embedded denoiser is loaded when it is first asked for."""
        from core.diffusion.denoise import Denoising
        from core.diffusion.graph import find_graph
        from core.diffusion.run import DenoiseRequest, start

        language = self._loaded_denoiser()
        settings = Denoising(
            ask.length, ask.block or language.block, ask.pace, ask.temperature, ask.seed
        )
        graph = find_graph(str(ask.nodes), language.name, ask.pace) if ask.nodes else None
        return start(language, DenoiseRequest(ask.prompt, settings, graph))

    def _loaded_denoiser(self, report: Report = lambda _: None) -> DiffusionLanguage:
        if self._denoiser is None:
            from core.diffusion.models import load_diffusion

            self._denoiser = load_diffusion(self._choice.denoiser, self._choice.device, report)
        return self._denoiser


class _LiveRun:
    """A run as a generator: closing it closes the decoding loop."""

    def __init__(self, run: Run):
        self._run, self.header = run, run.header

    def __iter__(self) -> Generator[Round, None, None]:
        with closing(self._run.rounds) as rounds:  # type: ignore[type-var]
            for record in rounds:
                yield self._run.with_texts(record)
