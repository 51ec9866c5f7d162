"""The studio's engine: loads a model once and starts one run at a time. torch loads with it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from core.decoding.request import RunRequest
from core.diffusion.request import DenoiseRequest
from core.errors import UserError
from core.files import write_json
from core.methods.names import DEFAULT, PLAIN
from core.models import presets
from core.models.embedded import NAME
from core.models.presets import Value
from core.progress import Progress, silent
from core.rounds.round import GREEDY, Round, Sampling
from core.traces.schema import Header

# How a text becomes one for What-if without the target that wrote it.
ELSEWHERE = (
    "`python -m app collect --model TARGET --answer TRACE --out FILE.safetensors` drafts its text "
    "with a target that you name, and What-if opens the file"
)

if TYPE_CHECKING:
    from analysis.drafters.measuring import Kept
    from core.decoding.engine import Engine, Run
    from core.diffusion.models import DiffusionLanguage


@dataclass(frozen=True)
class CollectRequest:
    """A request to write to ``path`` what methods' drafters say along the target's own text.

    of    the header of the run that is asked about: its target must be the one that is loaded
    text  the run's new tokens, as far as it has come
    """

    of: Header
    path: Path
    methods: tuple[str, ...]
    new_tokens: int
    sampling: Sampling = GREEDY
    text: tuple[int, ...] = ()
    method: ClassVar[str] = "collect"

    @property
    def prompt(self) -> str:
        return self.of.prompt_text


@dataclass(frozen=True)
class DiagnoseRequest:
    """A request to write to ``path``, as JSON, what is wrong with a method's drafter."""

    method: str
    path: Path
    prompt: ClassVar[str] = ""


Request = RunRequest | DenoiseRequest | CollectRequest | DiagnoseRequest


@dataclass(frozen=True)
class Started:
    """A started run: its header now, its rounds as they are decoded."""

    header: Header
    rounds: Generator[Round, None, None]


@dataclass(frozen=True)
class ModelChoice:
    """The model that the studio decodes with, as ``core.decoding.engine.Engine`` takes it.

    A diffusion model's preset takes the embedded denoiser's place in Denoise; nothing else runs.
    """

    model: str = NAME
    device: str = "auto"
    drafter: str | None = None
    template: Mapping[str, Value] = field(default_factory=dict)

    @property
    def denoiser(self) -> str:
        return self.model if presets.preset_of(self.model).diffusion else NAME


class LiveEngine:
    """``core.decoding.engine.Engine`` with the probe observing every round."""

    def __init__(self, choice: ModelChoice):
        self._choice = choice
        self._engine: Engine | None = None
        self._denoiser: DiffusionLanguage | None = None
        self._kept: Kept | None = None  # of diagnoses: one that was stopped goes on

    def prepare(self, report: Progress) -> None:
        """Raises UserError, with one sentence, when the model cannot be loaded."""
        report(None, "starting torch")
        from app.terminal import quiet_libraries

        quiet_libraries()
        from core.decoding.engine import Engine
        from core.methods.registry import choose

        choice = self._choice
        if choice.denoiser == choice.model != NAME:
            self._loaded_denoiser(report)
            return
        engine = Engine(choice.model, choice.device, choice.drafter, choice.template)
        engine.prepare(report)
        for name in (DEFAULT, PLAIN):
            report(None, "loading the drafter")
            with suppress(UserError):  # a run that needs it will say so
                engine.load(choose(name), report)
        self._engine = engine

    def start(self, request: Request, report: Progress = silent) -> Started:
        """``report`` hears of what comes before the first round; what it raises ends the run.
        Raises UserError for a bad request."""
        if isinstance(request, DenoiseRequest):
            if self._denoiser is None:
                report(None, "loading the denoiser")
            from core.diffusion.run import start

            run = start(self._loaded_denoiser(report), request)
            report(None, "the model's first call")
            return _live(run)
        from analysis.measures.probe import observe

        if self._engine is None:
            raise UserError(f"{self._choice.model} is a diffusion model: it runs in Denoise")
        if isinstance(request, CollectRequest):
            return _work(self._engine, request, partial(_collect, self._engine, request, report))
        if isinstance(request, DiagnoseRequest):
            work = partial(self._diagnose, self._engine, request, report)
            return _work(self._engine, request, work)
        return _live(self._engine.start(request, observe, report))

    def _diagnose(self, engine: Engine, asked: DiagnoseRequest, report: Progress) -> None:
        from analysis.drafters.diagnosis import diagnose
        from analysis.drafters.measuring import Kept
        from analysis.drafters.wiring import ProbePlan
        from analysis.experiments.prompts import PROMPTS

        kept = self._kept = self._kept or Kept()
        try:
            found = diagnose(engine, asked.method, PROMPTS, ProbePlan(), report, kept=kept)
        finally:
            kept.passages.clear()
        write_json(asked.path, found.to_json())

    def _loaded_denoiser(self, report: Progress = silent) -> DiffusionLanguage:
        """The embedded denoiser is loaded when the first run needs it."""
        if self._denoiser is None:
            from core.diffusion.models import load_diffusion

            self._denoiser = load_diffusion(self._choice.denoiser, self._choice.device, report)
        return self._denoiser


def _live(run: Run) -> Started:
    """Closing the generator closes the decoding loop."""

    def rounds() -> Generator[Round, None, None]:
        with closing(run.rounds) as found:  # type: ignore[type-var]
            for record in found:
                yield run.with_texts(record)

    return Started(run.header, rounds())


def _work(
    engine: Engine, request: CollectRequest | DiagnoseRequest, work: Callable[[], None]
) -> Started:
    """A run without rounds: when it has ended, its file is there."""

    def rounds() -> Generator[Round, None, None]:
        work()
        yield from ()

    return Started(Header(request.method, {}, {"name": engine.model}, request.prompt, ()), rounds())


def _collect(engine: Engine, asked: CollectRequest, report: Progress) -> None:
    """Make the file, if an equal request has not: its path stands for all that it is made of."""
    from analysis.collected.collect import CollectionPlan, collect, source_of, widest
    from core.decoding.engine import other_target

    if asked.path.is_file():
        return
    language = engine.prepare()
    if other := other_target(asked.of, language):
        raise UserError(f"{other}, and What-if needs the run's own target: {ELSEWHERE}")
    source = source_of(engine, asked.methods, widest(asked.methods))
    ids = list(asked.of.prompt_ids) or language.encode_chat(asked.prompt)
    plan = CollectionPlan(asked.new_tokens, sampling=asked.sampling)
    collect(source, ids, asked.path, plan, asked.prompt, report)
