"""Plants defects and runs tests. See the package."""

from __future__ import annotations

import argparse
import gc
import os
import re
import resource
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from shutil import copy2
from tempfile import TemporaryDirectory, TemporaryFile
from typing import NoReturn

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SURVIVED, GONE, UNFIT = "survived", "does not apply", "its tests fail without it"
TOO_LONG = 120  # CPU seconds of tests: an endless loop is noticed by whoever runs them
# imported once, not for every defect: with them a run of tests begins some four seconds sooner
LARGE = ("pandas", "torch", "numba", "hypothesis", "pytest", "transformers", "plotly",
         "transformers.models.llama.modeling_llama")  # fmt: skip
PYTEST = ("-x", "-n0", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider",
          "-m", "not embedded and not browser")  # fmt: skip


@dataclass(frozen=True)
class Defect:
    """``old`` is in ``file`` once, and ``new`` in its place should make one of the tests fail."""

    name: str
    file: str
    tests: tuple[str, ...]
    old: str
    new: str

    def planted(self, source: str) -> str | None:
        """The source with it; None where it does not apply, or leaves no Python in a module."""
        pattern = r"\s+".join(map(re.escape, self.old.split()))
        changed, count = re.subn(pattern, lambda _: self.new, source)
        if count != 1 or changed == source:
            return None
        try:
            if self.file.endswith(".py"):
                compile(changed, self.file, "exec")
        except SyntaxError:
            return None
        return changed

    def chosen(self, words: Sequence[str]) -> bool:
        return not words or any(word in self.name or word in self.file for word in words)


def listed(path: Path) -> list[Defect]:
    """The defects of a list. Raises ValueError where two have one name."""
    found = [
        Defect(name, module["file"], tuple(module["tests"]), old, new)
        for module in tomllib.loads(path.read_text())["module"]
        for name, old, new in module["defects"]
    ]
    if len({each.name for each in found}) < len(found):
        raise ValueError(f"two defects in {path} have one name")
    return found


class Scratch:
    """A copy of the files that git knows of, or would, in which defects are planted."""

    def __init__(self, root: Path, folder: Path):
        self._folder, self._writes = folder, int(time.time())  # noqa: TID251 (as files have it)
        self._sound: set[tuple[str, ...]] = set()  # tests that pass without a defect
        for name in _files(root):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            copy2(root / name, folder / name)

    def outcome(self, defect: Defect) -> str:
        """The first test that fails with it, or why there is none."""
        source = (self._folder / defect.file).read_text()
        if (changed := defect.planted(source)) is None:
            return GONE
        if defect.tests not in self._sound and self._failing(defect.tests):
            return UNFIT
        self._sound.add(defect.tests)
        self._write(defect.file, changed)
        try:
            return self._failing(defect.tests, "@compiled" in source) or SURVIVED
        finally:
            self._write(defect.file, source)

    def _write(self, name: str, text: str) -> None:
        """Every text gets a second of its own: Python takes a compiled file by second and size."""
        (self._folder / name).write_text(text)
        self._writes += 1
        os.utime(self._folder / name, (self._writes, self._writes))

    def _failing(self, tests: tuple[str, ...], compiled: bool = False) -> str | None:
        """The first test that fails; those of scripts are run by Node. ``compiled``: numba's cache
        does not see a change in what a function calls, so it has an empty one."""
        if tests[0].endswith(".js"):
            return _failing_script(self._folder, tests)
        with TemporaryDirectory() as fresh, TemporaryFile("w+") as output:
            sys.stdout.flush()
            gc.freeze()  # or the child copies all that is imported when it looks for garbage
            if (child := os.fork()) == 0:
                if compiled:
                    os.environ["NUMBA_CACHE_DIR"] = fresh
                _run_tests(self._folder, tests, output.fileno())
            status = os.waitpid(child, 0)[1]
            output.seek(0)
            said = output.read()
        if status == 0:
            return None
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            return f"more than {TOO_LONG} s"
        found = re.search(r"^(?:FAILED|ERROR) ([^\s\[]+)", said, re.MULTILINE)
        if found is None:
            sys.exit(f"{' '.join(tests)} cannot be run:\n{said}")
        return found[1]


def _failing_script(folder: Path, tests: Sequence[str]) -> str | None:
    command = [Path(sys.executable).with_name("node"), "--test", "--test-reporter=spec", *tests]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TOO_LONG)
    except subprocess.TimeoutExpired:
        return f"more than {TOO_LONG} s"
    if done.returncode == 0:
        return None
    found = re.search(r"^✖ (.+) \([\d.]+ms\)$", done.stdout, re.MULTILINE)
    if found is None or found[1] in tests:  # a script that cannot be read
        sys.exit(f"{' '.join(tests)} cannot be run:\n{done.stdout}")
    return found[1]


def _run_tests(folder: Path, tests: Sequence[str], output: int) -> NoReturn:
    """In a forked process: pytest in a folder. The large packages are imported already, none of the
    project's own modules is."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # a test that runs this has others
    resource.setrlimit(resource.RLIMIT_CPU, (TOO_LONG, TOO_LONG + 5))
    os.chdir(folder)
    sys.path[0] = str(folder)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    status = 1
    try:
        import pytest

        status = int(pytest.main([*PYTEST, *tests]))
        sys.stdout.flush()
    finally:
        os._exit(status)


def _files(root: Path) -> list[str]:
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return [name for name in names.stdout.splitlines() if (root / name).is_file()]


def outcomes(root: Path, defects: Sequence[Defect]) -> Iterator[tuple[Defect, str]]:
    """Each defect, in order, and the first test that fails with it."""
    for name in LARGE:
        with suppress(ImportError):
            import_module(name)
    with TemporaryDirectory() as folder:
        scratch = Scratch(root, Path(folder))
        for defect in defects:
            yield defect, scratch.outcome(defect)


def read_record(path: Path) -> dict[str, str]:
    """Read what a record says of each defect, by its name."""
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split("\t") for line in lines)


def write_record(path: Path, defects: Sequence[Defect], found: Mapping[str, str]) -> None:
    """Write in the order of the list; defects that have left it are dropped."""
    lines = [f"{each.name}\t{found[each.name]}\n" for each in defects if each.name in found]
    path.write_text("".join(lines))


def main(root: Path, listing: Path, record: Path, words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m tests.defects")
    parser.add_argument("words", nargs="*", help="only files and names that hold one of them")
    parser.add_argument("--check", action="store_true", help="only whether each still applies")
    parser.add_argument("--new", action="store_true", help="only those without a record")
    parser.add_argument("--record", action="store_true", help="write what is found")
    args = parser.parse_args(words)
    every = listed(listing)
    chosen = [each for each in every if each.chosen(args.words)]
    if args.check:
        gone = [each for each in chosen if each.planted((root / each.file).read_text()) is None]
        print("\n".join(f"{each.file}: {each.name}" for each in gone) or "all apply")
        return bool(gone)
    before, found, lost = read_record(record), dict[str, str](), 0
    chosen = [each for each in chosen if not args.new or each.name not in before]
    for defect, outcome in outcomes(root, chosen):
        bad = outcome in (GONE, UNFIT)
        found[defect.name] = outcome
        if args.record and not bad:  # at once: a run that is stopped can go on with --new
            write_record(record, every, read_record(record) | {defect.name: outcome})
        bad |= outcome == SURVIVED != before.get(defect.name, SURVIVED)
        lost += bad
        print(f"{'✗' if bad else ' '} {defect.file}: {defect.name}: {outcome}", flush=True)
    caught = sum(outcome not in (SURVIVED, GONE, UNFIT) for outcome in found.values())
    print(f"{caught} of {len(found)} caught")
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main(ROOT, HERE / "list.toml", HERE / "caught.tsv", sys.argv[1:]))
