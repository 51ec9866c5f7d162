"""``doctor``: what is installed, what this machine has, which models are ready, what is missing."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
from collections.abc import Iterator
from importlib import metadata
from typing import TYPE_CHECKING

from app.commands.common import EMBEDDED
from app.terminal import console, one_line
from core import ASSETS, VERSION
from core.methods.registry import RECIPES
from core.models import embedded, presets

if TYPE_CHECKING:
    from core.methods.fetch import Needs

NEEDED = ("torch", "transformers", "safetensors", "numpy", "numba", "rich")
FOR_PREPARING = ("gguf", "accelerate")
FOR_STUDIO = ("gradio",)
FOR_CLUSTERS = ("ray",)
FOR_TESTS = ("pytest", "hypothesis", "playwright", "ruff", "pyright")
INSTALL = "pip install -r requirements.txt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Show versions, device, models ready, and what is missing. Always exits 0.\n"
        "With the name of a preset: what it needs in disk and memory, before it is fetched."
    )
    parser.add_argument(
        "model", nargs="?", metavar="NAME|FILE.toml", help="a preset, as --model takes it"
    )


def main(args: argparse.Namespace) -> int:
    if args.model is not None:
        return _preset(args.model)
    out, missing = console(), list[str]()
    for title, lines in (
        ("versions", _versions(missing)),
        ("machine", _machine(missing)),
        ("models", _models(missing)),
        ("presets", _presets()),
        ("methods", _methods()),
    ):
        out.print(title, style="bold")
        for line in lines:
            out.print(f"  {line}", soft_wrap=True)
    out.print("missing" if missing else "nothing is missing", style="bold")
    for line in missing:
        out.print(f"  {line}", soft_wrap=True)
    return 0


def _versions(missing: list[str]) -> Iterator[str]:
    yield f"draftscope {VERSION} · python {platform.python_version()}"
    wanted = _pins()
    for names, purpose in (
        (NEEDED, "decoding"),
        (FOR_PREPARING, "making the embedded target"),
        (FOR_STUDIO, "the studio"),
        (FOR_CLUSTERS, "sweep --ray"),
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


def _machine(missing: list[str]) -> Iterator[str]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield f"{platform.system()} {platform.machine()} · {cores} CPU cores{_memory()}"
    try:
        import torch

        devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    except Exception as error:  # a broken driver or build: the doctor says so and goes on
        missing.append(f"a torch that loads ({one_line(str(error), 120)}): {INSTALL}")
        return
    for index, found in enumerate(devices):
        yield f"cuda:{index} {found.name} · {found.total_memory / 2**30:.0f} GiB"
    if not devices:
        yield f"no GPU seen by torch {torch.__version__}: decoding runs on the CPU in float32"


def _memory() -> str:
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        total, free = (os.sysconf(n) * page / 2**30 for n in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        return ""
    return f" · {total:.0f} GiB memory, {free:.0f} GiB unused"


def _models(missing: list[str]) -> Iterator[str]:
    root = embedded.cache_root()
    above = next(p for p in (root.absolute(), *root.absolute().parents) if p.exists())
    yield f"cache {root} · {shutil.disk_usage(above).free / 2**30:.0f} GiB free on disk"
    if embedded.is_ready():
        yield f"target {EMBEDDED}: ready in {embedded.embedded_path()}"
    else:
        yield f"target {EMBEDDED}: not fetched yet"
        missing.append(f"the embedded target {EMBEDDED}, 86 MB: python -m app fetch")
    drafters = sorted((ASSETS / "models").glob("*/*/config.json"))
    for config in drafters:
        size = sum(f.stat().st_size for f in config.parent.iterdir() if f.is_file()) / 2**20
        yield f"drafter {config.parent.relative_to(ASSETS / 'models')}: ready, {size:.1f} MiB"
    for store in sorted((ASSETS / "models").glob("*/ngram.safetensors")):
        size = store.stat().st_size / 2**20
        yield f"n-gram store {store.relative_to(ASSETS / 'models')}: ready, {size:.1f} MiB"
    if not any(config.parent.parent.name == EMBEDDED for config in drafters):
        missing.append(f"a drafter for {EMBEDDED}: python -m app train, or name one by --drafter")


def _presets() -> Iterator[str]:
    for preset in presets.shipped().values():
        parts = [*preset.drafters, *(["ngram"] if preset.ngram else [])]
        yield f"{preset.name} · {preset.about}" + (f" · {', '.join(parts)}" if parts else "")
    yield "doctor NAME says what one needs; fetch NAME gets it"


# ── one preset ───────────────────────────────────────────────────────────────────────────────────


def _preset(name: str) -> int:
    from app.commands.common import named_preset, quiet_libraries

    preset = named_preset(name)
    quiet_libraries()
    from core.methods.fetch import needs

    found, out = needs(preset), console()
    out.print(one_line(f"{name} · {preset.about}" if preset.about else name, 200), style="bold")
    for line in (*_parts(found), *_disk(found), *_load(found, preset)):
        out.print(f"  {line}", soft_wrap=True)
    return 0


def _parts(found: Needs) -> Iterator[str]:
    for part in found.parts:
        size = "size unknown: the hub cannot be asked" if part.size is None else _bytes(part.size)
        yield f"{part.what} {one_line(part.source, 200)}: {size}" + (", here" if part.here else "")


def _disk(found: Needs) -> Iterator[str]:
    root = embedded.cache_root()
    above = next(p for p in (root.absolute(), *root.absolute().parents) if p.exists())
    free = shutil.disk_usage(above).free
    if found.missing is None:
        known = sum(part.size or 0 for part in found.parts if not part.here)
        yield f"disk: at least {_bytes(known)} to fetch, {_bytes(free)} free"
    else:
        short = " – too little" if found.missing > free else ""
        yield f"disk: {_bytes(found.missing)} to fetch, {_bytes(free)} free{short}"


def _load(found: Needs, preset: presets.Preset) -> Iterator[str]:
    """Memory on the devices that are here, in what each computes in."""
    for where, width, size in _devices():
        weights = found.weights(width)
        if weights is None:
            yield f"memory: unknown, the target's size is not known ({where})"
            continue
        kind = "float32" if width == 4 else "bfloat16"
        context = (
            f", and {_bytes(found.context * width)} a token of context" if found.context else ""
        )
        room = f" of {_bytes(size)}" if size else ""
        short = " – too little" if size and weights > size else ""
        yield f"memory on {where}: {_bytes(weights)}{room} for weights in {kind}{context}{short}"
    if preset.drafters:
        yield "a drafter's own weights come on top: about what its file takes"


def _devices() -> Iterator[tuple[str, int, int | None]]:
    """(name, bytes of a number it computes in, its memory) of every device."""
    import torch

    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        yield f"cuda:{index}", 2, found.total_memory
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        total = None
    yield "cpu", 4, total


def _bytes(size: int) -> str:
    """1.5 GB: as disks and the hub count."""
    for unit, of in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= of:
            return f"{size / of:.1f} {unit}"
    return f"{size} bytes"


def _methods() -> Iterator[str]:
    for name, recipe in RECIPES.items():
        options = " ".join(f"{k}={v}" for k, v in recipe.defaults.items())
        yield f"{name} · {recipe.about}" + (f" · --set {options}" if options else "")
