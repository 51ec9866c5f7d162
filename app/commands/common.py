"""Common work of commands: read a request off the arguments, find a preset, load an engine.

No torch at the top.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.commands.options import Model, RequestOptions
from app.terminal import ProgressBar, one_line, quiet_libraries
from core.decoding.request import RunRequest
from core.errors import UserError
from core.lines import Limits
from core.methods.registry import split
from core.models import presets
from core.models.embedded import NAME as EMBEDDED
from core.models.hub import Source, config_file
from core.models.presets import Value
from core.rounds.round import Round
from core.traces.reader import read_trace
from core.traces.schema import Trace

if TYPE_CHECKING:
    from core.decoding.engine import Engine


def request_of(args: RequestOptions, method: str, budget: int | None = None) -> RunRequest:
    """The request that the options describe, without its prompt."""
    return RunRequest(
        prompt="",
        method=method,
        budget=preset_budget(args.model, method) if budget is None else budget,
        max_new_tokens=args.max_new_tokens,
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        seed=args.seed,
        options=args.set,
    )


def preset_budget(model: str, method: str) -> int | None:
    """The budget that a model's preset names for a method; None: the method's own."""
    return presets.preset_of(model).budgets.get(split(method)[0])


def template_of(args: Model) -> dict[str, Value]:
    """The chat template's variables: true, yes, false and no as booleans, all else as text."""
    words: dict[str, Value] = {"true": True, "yes": True, "false": False, "no": False}
    return {name: words.get(value.lower(), value) for name, value in args.template}


def check_drafter(name: str | None) -> str | None:
    """A drafter's folder, GGUF file or hub id. Raises UserError for any other name."""
    if name is not None and not _here_or_on_hub(Source.checked(name)):
        raise UserError(f"there is no drafter folder {name}")
    return name


def check_weights(methods: Sequence[str]) -> None:
    """Raises UserError as ``check_drafter`` for the checkpoints that the methods name."""
    for method in methods:
        check_drafter(split(method)[1] or None)


def read_one(path: Path, limits: Limits) -> Trace:
    """Read a trace, and show how far it is where that takes long. Raises UserError."""
    with reading_bar(path) as progress:
        return read_trace(path, limits, progress.at)


def reading_bar(path: Path) -> ProgressBar:
    """How far a file is read, where that takes long."""
    return ProgressBar(f"reading {one_line(path.name, 60)}", late=True)


def pick(trace: Trace, wanted: int | None) -> Round:
    """The round of this number, from 1; None: the first. Raises UserError where there is none."""
    for record in trace.rounds:
        if wanted is None or record.number == wanted:
            return record
    if not trace.rounds:
        why = "" if trace.complete else ": it was stopped before the first one"
        raise UserError(f"the trace holds no round{why}")
    first, last = trace.rounds[0].number, trace.rounds[-1].number
    raise UserError(f"the trace has no round {wanted}: its rounds are {first} to {last}")


def collected_at(paths: Sequence[Path]) -> list[Path]:
    """The collected texts at these paths, each once."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
        if not inside:
            raise UserError(f"the folder {path} holds no collected text (.safetensors)")
        found += inside
    return list(dict.fromkeys(found))


def find_preset(name: str) -> presets.Preset:
    """The preset or model of a name. Raises UserError for what is neither: a folder without a
    model, or a bare word."""
    preset = presets.preset_of(name)
    target, folder = preset.target, preset.target.folder
    if preset == presets.Preset(name, target) and not _here_or_on_hub(target):
        raise UserError(
            f"there is no preset, folder or model {name!r} "
            f"(presets: {', '.join(presets.shipped_presets())}; a model of the hub is ORG/NAME)"
        )
    if target.name != EMBEDDED and folder and not (folder / config_file(folder)).is_file():
        raise UserError(f"the folder {target.name} holds no model: it has no config.json")
    return preset


def _here_or_on_hub(source: Source) -> bool:
    """Whether it is a folder or GGUF file here, or ORG/NAME; a bare word is none of them, though
    the hub has some."""
    return source.is_local or "/" in source.name


def load_engine(args: Model, methods: Sequence[str] = (), ends: bool = False) -> Engine:
    """The engine with its target loaded, or its ``ends`` alone, and the drafters of ``methods``
    brought here; progress shown. The first time, that takes a minute."""
    drafter = check_drafter(args.drafter)
    check_weights(methods)
    with ProgressBar("preparing " + args.model) as progress:
        progress.at(None, "loading libraries")
        quiet_libraries()
        from core.decoding.engine import Engine

        engine = Engine(args.model, args.device, drafter, template_of(args), ends)
        engine.prepare(progress.at, methods)
    return engine
