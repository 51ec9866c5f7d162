"""``model doctor``: what is installed, which models are ready, and what is missing."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from analysis.numbers import size
from app.command_line import CommandOptions, words
from app.commands.model.examined import examine, free_disk, memory_of
from app.terminal import console, one_line
from core import ASSETS, VERSION
from core.errors import UserError
from core.files import cache_root
from core.methods.method import Option, find_builder, options_of
from core.methods.names import BUILDERS
from core.methods.registry import listed
from core.models import embedded, presets
from core.models.embedded import NAME as EMBEDDED
from core.tensor_files import open_tensors

NEEDED = ("torch", "transformers", "safetensors", "numpy", "numba", "rich")
FOR_PREPARING = ("gguf", "accelerate")
FOR_STUDIO = ("gradio",)
FOR_CLUSTERS = ("ray",)
FOR_TESTS = ("pytest", "hypothesis", "playwright", "ruff", "pyright", "import-linter")
INSTALL = "pip install -r requirements.txt"


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """Show versions, device, models that are ready, methods and their options, and what is missing.

    Exit code 1 when something that is here cannot be loaded. Memory is measured with the embedded
    model loaded, which takes some seconds.

    Given a preset, a folder, a GGUF file or a Hugging Face id, it says whether that opens as a
    target or as a drafter, by which method and for which target, and what it needs in disk and
    memory. From the hub it fetches only the config. Exit code 1 when it does not open.
    """

    model: str | None = words("a preset, a folder, a GGUF file or a Hugging Face id", None)


def main(args: Options) -> int:
    if args.model is not None:
        return examine(args.model)
    out, missing, broken = console(), list[str](), list[str]()
    target = cache(_embedded)  # loaded when the first lines need it
    for title, lines in (
        ("versions", lambda: _versions(missing)),
        ("machine", lambda: _machine(broken)),
        ("models", lambda: _models(missing, broken, target()[1])),
        ("memory", lambda: target()[0]),
        ("presets", _presets),
        ("methods", _methods),
    ):
        out.print(title, style="bold")
        for line in lines():
            out.print(f"  {line}", soft_wrap=True)
    for title, lines in (("broken", broken), ("missing", missing)):
        out.print(title if lines else f"nothing is {title}", style="bold")
        for line in lines:
            out.print(f"  {line}", soft_wrap=True)
    return 1 if broken else 0


def _versions(missing: list[str]) -> Iterator[str]:
    yield f"draftscope {VERSION} · python {platform.python_version()}"
    wanted = _pins()
    for names, purpose in (
        (NEEDED, "decoding"),
        (FOR_PREPARING, "making the embedded target"),
        (FOR_STUDIO, "the studio"),
        (FOR_CLUSTERS, "grid run --ray, trace pack --ray"),
        (FOR_TESTS, "the tests"),
    ):
        found = {name: _version(name) for name in names}
        yield f"{' · '.join(f'{n} {v}' for n, v in found.items() if v) or 'none'}  ({purpose})"
        absent = [name for name, version in found.items() if version is None]
        if absent:
            missing.append(f"{', '.join(absent)} for {purpose}: {INSTALL}")
        for name, version in found.items():
            if version and name in wanted and version.partition("+")[0] != wanted[name]:
                missing.append(f"{name} {wanted[name]}, as tested; found {version}: {INSTALL}")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _pins() -> dict[str, str]:
    """Versions that requirements.txt names, where it can be read."""
    try:
        lines = (ASSETS.parent / "requirements.txt").read_text("utf-8").splitlines()
    except OSError:
        return {}
    lines = [line.partition(";")[0] for line in lines if not line.startswith("#")]
    pairs = (line.split("==") for line in lines if "==" in line)
    return {name.strip(): version.strip() for name, version in pairs}


def _machine(broken: list[str]) -> Iterator[str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield f"{platform.system()} {platform.machine()} · {cores} CPU cores{_memory()}"
    try:
        import torch

        devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    except Exception as error:  # a broken driver or build: the doctor says so and goes on
        broken.append(f"torch cannot be loaded ({one_line(str(error), 120)}): {INSTALL}")
        return
    for index, found in enumerate(devices):
        yield f"cuda:{index} {found.name} · {found.total_memory / 2**30:.0f} GiB"
    if not devices:
        yield f"no GPU seen by torch {torch.__version__}: decoding runs on the CPU in float32"


def _memory() -> str:
    total, free = memory_of("SC_PHYS_PAGES"), memory_of("SC_AVPHYS_PAGES")
    if total is None or free is None:
        return ""
    return f" · {total / 2**30:.0f} GiB memory, {free / 2**30:.0f} GiB unused"


def _embedded() -> tuple[list[str], str]:
    """Load the embedded target: lines on the memory that it holds on the CPU, and what is wrong
    with it, if anything is."""
    if not embedded.is_ready():
        return [f"unknown before the target {EMBEDDED} is fetched"], ""
    from app import memory_held

    try:
        return list(memory_held.lines()), ""
    except Exception as error:  # a broken cache or build: the doctor says so and goes on
        trouble = one_line(str(error) or type(error).__name__, 120)
        return [f"unknown: the target {EMBEDDED} cannot be loaded"], trouble


def _models(missing: list[str], broken: list[str], trouble: str) -> Iterator[str]:
    """``trouble``: what is wrong with the embedded target."""
    yield f"cache {cache_root()} · {free_disk() / 2**30:.0f} GiB free on disk"
    yield from _kept(cache_root())
    folder = embedded.embedded_path()
    if not embedded.is_ready():
        yield f"target {EMBEDDED}: not fetched yet"
        missing.append(f"the embedded target {EMBEDDED}, 86 MB: python -m app model fetch")
    elif trouble:
        yield f"target {EMBEDDED}: cannot be loaded from {folder} ({trouble})"
        broken.append(f"the target {EMBEDDED}: remove {folder}, then python -m app model fetch")
    else:
        yield f"target {EMBEDDED}: ready in {folder}"
    drafters = sorted((ASSETS / "models").glob("*/*/config.json"))
    for config in drafters:
        files = [file for file in config.parent.iterdir() if file.is_file()]
        weights = config.parent.glob("*.safetensors")
        yield _shipped("drafter", config.parent, files, weights, broken)
    for store in sorted((ASSETS / "models").glob("*/ngram.safetensors")):
        yield _shipped("n-gram store", store, [store], [store], broken)
    if not any(config.parent.parent.name == EMBEDDED for config in drafters):
        missing.append(f"a drafter for {EMBEDDED}: python -m app train, or name one by --drafter")


def _kept(cache: Path) -> Iterator[str]:
    """Say what the folders of the cache take on disk; nothing else would tell of old copies."""
    try:
        held = {
            folder.name: sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            for folder in sorted(cache.iterdir())
            if folder.is_dir()
        }
    except OSError:  # not made yet, or being written
        return
    if sizes := ", ".join(
        f"{one_line(name, 40)} {size(held[name])}" for name in held if held[name]
    ):
        yield f"in it: {sizes}; what is removed is made or fetched again when it is needed"


def _shipped(
    kind: str, path: Path, files: Iterable[Path], weights: Iterable[Path], broken: list[str]
) -> str:
    """A line on a shipped file or folder; its weights are whole as far as their headers tell."""
    name = f"{kind} {path.relative_to(ASSETS / 'models')}"
    try:
        for file in weights:
            with open_tensors(file, "a safetensors file"):
                pass
    except UserError as error:
        broken.append(f"the {name}: {one_line(str(error), 200)}")
        return f"{name}: damaged"
    return f"{name}: ready, {size(sum(file.stat().st_size for file in files))}"


def _presets() -> Iterator[str]:
    for preset in presets.shipped_presets().values():
        parts = [*preset.drafters, *(["ngram"] if preset.ngram else [])]
        yield f"{preset.name} · {preset.about}" + (f" · {', '.join(parts)}" if parts else "")
    yield "model doctor NAME says what one needs; model fetch NAME gets it"


def _methods() -> Iterator[str]:
    """Listed methods, then the builders that only serve in pairs, each with its options."""
    methods = listed()
    for name, method in methods.items():
        yield f"{name} · {method.about}"
        yield from _options(method.all_options)
    for name in BUILDERS.keys() - {method.builder for method in methods.values()}:
        builder = find_builder(name)
        yield f"DRAFTER+{name} · {builder.about}"
        yield from _options(options_of(builder.options))


def _options(options: Sequence[Option]) -> Iterator[str]:
    """Each option with its default, its range and what it is."""
    for option in options:
        allowed = f"{option.range}: " if option.range else ""
        yield f"    {f'{option.name}={option.default}':<24}{allowed}{option.help}"
