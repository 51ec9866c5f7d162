"""The command line: which commands there are, and how each of them may end.

Exit codes: 0 done · 1 a check found something · 2 bad input, with one sentence on stderr ·
130 stopped with Ctrl-C · 141 the reader of our output went away.

A command is a module with ``add_arguments(parser)`` and ``main(args) -> int``. It is imported when
it is chosen, so that ``--help`` and ``replay`` never wait for torch.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import TextIOWrapper
from typing import NoReturn, TextIO

from core import VERSION
from core.errors import UserError, unwritable

PROGRAM = "python -m app"


@dataclass(frozen=True)
class Command:
    """What a command does, and examples of what follows ``python -m app``."""

    about: str
    examples: tuple[str, ...]


def command(about: str, *examples: str) -> Command:
    return Command(about, examples)


GROUPS: dict[str, dict[str, Command]] = {
    "look": {
        "studio": command(
            "open the studio in the browser (the default without a command)",
            "studio",
            "studio runs/s",
            "studio --port 7861 --model Qwen/Qwen3-0.6B --device cuda",
        ),
        "replay": command(
            "show a trace in the terminal: its rounds, or one round's tree",
            "replay run.jsonl",
            "replay run.jsonl --round 3",
        ),
        "validate": command(
            "say in one sentence whether a file is a readable trace", "validate run.jsonl.gz"
        ),
        "export": command(
            "write a trace as an offline page, picture, graph, table or timeline",
            "export run.jsonl --to html",
            "export run.jsonl --to svg --round 3 --dark",
            "export run.jsonl --to csv --table nodes --out nodes.csv",
        ),
    },
    "decode": {
        "run": command(
            "decode prompts with one method: text, τ, acceptance, tokens/s",
            'run ddtree --prompt "Why is the sky blue?" --budget 16',
            'run ddtree --prompt "Write a haiku." --temperature 1 --seed 7 --trace run.jsonl',
            "run dflash --prompts questions.jsonl --json > answers.jsonl",
        ),
        "denoise": command(
            "write with a masked-diffusion model, plainly or with Spiffy's drafts",
            'denoise --prompt "Why is the sky blue?" --spiffy 10',
            "denoise --prompts questions.jsonl --table --json > speedups.json",
        ),
    },
    "measure": {
        "report": command(
            "say what traces show: τ, acceptance and TVD by depth, causes, calibration",
            "report run.jsonl",
            "report runs/ --out tables --format csv parquet --html",
        ),
        "audit": command(
            "check that a method writes exactly what plain decoding writes",
            "audit ddtree",
            "audit ddtree --prompts questions.txt --budget 7 64 --temperature 1",
        ),
        "bench": command(
            "time methods and budgets against plain decoding and generate()",
            "bench",
            "bench ddtree --budget 8 16 32 --max-new-tokens 128 --repeats 5",
        ),
        "sweep": command(
            "run methods × budgets × prompts × seeds into one table and traces (resumable)",
            "sweep runs/s ar ddtree treeflash --budget 16 64 --prompts questions.jsonl",
            "sweep runs/s ddtree --budget 8 16 --temperature 1 --seed 0 1 2 --ray auto",
        ),
        "table": command(
            "measure methods on the same prompts, greedily and at T = 1 (resumable)",
            "table runs/t ar ddtree treeflash eagle3 --prompts questions.jsonl",
        ),
        "import": command(
            "say what counts of vLLM, SGLang or llama.cpp mean; read DDTree's saved trees",
            "import vllm.log",
            "import responses.jsonl --json",
            "import trees.json --out trees.jsonl.gz",
        ),
        "collect": command(
            "run the drafters at every token of one text, for whatif",
            'collect sky.safetensors --prompt "Why is the sky blue?"',
            "collect texts --prompts questions.jsonl",
        ),
        "whatif": command(
            "simulate methods, budgets and options on a collected text, without the model",
            "whatif sky.safetensors",
            "whatif sky.safetensors treeflash --budget 16 64 --set candidates=4",
        ),
        "calibrate": command(
            "measure TVD and coverage of drafters by depth, against the marginal",
            "calibrate runs/calibration",
            "calibrate runs/c --anchors 192 --continuations 64",
        ),
        "diagnose": command(
            "why is my drafter bad? try its wiring under every named mistake",
            "diagnose ddtree --model qwen3-8b --drafter my-drafter",
            "diagnose ddtree --prompts questions.jsonl --json > wiring.json",
        ),
        "compare-texts": command(
            "compare one text by two engines: the first token that differs",
            "compare-texts run.jsonl.gz vllm-response.json",
            "compare-texts ours.jsonl.gz theirs.jsonl.gz --json",
        ),
        "trained": command(
            "compare a trainer's accuracy by depth with what serving shows",
            "trained runs/one/dflash/accuracy.json runs/s/traces",
            "trained specforge-log.jsonl vllm.log --json",
        ),
        "compare-drafters": command(
            "compare checkpoints of one drafter on the same texts",
            "compare-drafters runs/c ddtree runs/before runs/after --prompts questions.jsonl",
            "compare-drafters runs/c ddtree default runs/mine/dflash/checkpoint --json",
        ),
        "cost": command(
            "measure what a round costs here, and name the budget that pays",
            "cost sky.safetensors ddtree",
            "cost sky.safetensors treeflash --check",
        ),
    },
    "prepare": {
        "fetch": command(
            "make the embedded target ready, or another preset", "fetch", "fetch qwen3-4b"
        ),
        "train": command("train a drafter for a target (resumable)", "train --help"),
        "find-graph": command(
            "find the draft graphs that save a diffusion model most calls (resumable)",
            "find-graph graphs --prompts questions.jsonl --count 50",
        ),
        "export-checkpoint": command(
            "write a drafter in its official format", "export-checkpoint runs/drafter-official"
        ),
        "ngram": command(
            "count the n-grams of any text into a store, or convert a .trie",
            "ngram ngrams.safetensors questions.jsonl notes/ --min-count 2",
            "ngram qwen3.safetensors small.trie --model Qwen/Qwen3-4B",
        ),
        "doctor": command(
            "show versions, device, models ready, methods, and what is missing", "doctor"
        ),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
ALIASES = {"calibrate-graph": "find-graph"}  # names that commands had
MODULES = {
    "train": "core.train.run",
    "import": "app.commands.import_run",
}  # the others are app.commands.NAME


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are a UserError: one sentence instead of a usage dump."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see {self.prog} --help)")


class Format(argparse.RawDescriptionHelpFormatter):
    """Descriptions as they are written; options in one wide column."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=30, width=96)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    _prepare_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except UserError as error:
        return _complain(str(error), 2)
    except KeyboardInterrupt:
        return _complain("stopped", 130)
    except BrokenPipeError:
        return _reader_gone()
    except Exception as error:
        if os.environ.get("DRAFTSCOPE_DEBUG"):
            raise
        if full := unwritable(error):
            return _complain(full, 2)
        what = " ".join(f"{type(error).__name__}: {error}".split())
        return _complain(f"{what} (DRAFTSCOPE_DEBUG=1 shows where)", 1)


def _dispatch(words: list[str]) -> int:
    if words[:1] in (["-h"], ["--help"], ["help"]):
        print(overview())
        return 0
    if words[:1] == ["--version"]:
        print(f"draftscope {VERSION}")
        return 0
    if not words or words[0].startswith("-"):
        words = ["studio", *words]
    name = ALIASES.get(words[0], words[0])
    if name not in COMMANDS:
        names = ", ".join(COMMANDS)
        raise UserError(f"there is no command {words[0]!r}: choose one of {names}")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # libraries warn their authors, not our users
    module = importlib.import_module(MODULES.get(name, f"app.commands.{name.replace('-', '_')}"))
    parser = command_parser(name)
    module.add_arguments(parser)
    try:
        args = parser.parse_args(words[1:])
    except SystemExit as done:  # --help
        return int(done.code or 0)
    return module.main(args)


def command_parser(name: str) -> Parser:
    """The command's parser, still without its own arguments."""
    command = COMMANDS[name]
    lines = "\n".join(f"  {PROGRAM} {example}" for example in command.examples)
    title = "example" if len(command.examples) == 1 else "examples"
    return Parser(
        prog=f"{PROGRAM} {name}",
        description=f"{command.about[0].upper()}{command.about[1:]}.",
        epilog=f"{title}:\n{lines}",
        formatter_class=Format,
        allow_abbrev=False,
    )


def overview() -> str:
    """The text of ``python -m app --help``."""
    lines = [
        "Draftscope: real speculative decoding, with every draft tree in sight.",
        "",
        f"usage: {PROGRAM} [COMMAND] [OPTIONS]",
        "",
    ]
    for title, group in GROUPS.items():
        lines.append(f"{title}:")
        lines += [f"  {name:<19}{command.about}" for name, command in group.items()]
        lines.append("")
    lines.append("one example of each:")
    lines += [f"  {PROGRAM} {command.examples[0]}" for command in COMMANDS.values()]
    return "\n".join([*lines, "", f"See {PROGRAM} COMMAND --help for each."])


def _prepare_streams() -> None:
    """A terminal that cannot show a character gets an escape, never an exception.

    Python has no stream for one that the shell closed: stdout then becomes one whose reader has
    gone, and stderr goes nowhere (print would otherwise write to stdout).
    """
    if sys.stdout is None:
        sys.stdout = _broken_pipe()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 – as long as we run
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _broken_pipe() -> TextIO:
    """A stream in place of stdout that fails on writing, as ``| head`` does in the end."""
    read, write = os.pipe()
    os.close(read)
    if write != 1:  # or libraries would take the next file that is opened for stdout
        os.dup2(write, 1)
        os.close(write)
    return open(1, "w", encoding="utf-8", closefd=False)


def _complain(sentence: str, code: int) -> int:
    """Write one line to stderr. It may quote a file or a trace, so it is made safe to show."""
    from app.view.text import flowing

    line = f"draftscope: {flowing(sentence)}".replace("\n", " ") + "\n"
    for stream, text in ((sys.stdout, ""), (sys.stderr, line)):
        try:
            stream.write(text)
            stream.flush()
        except BrokenPipeError:
            return _reader_gone()
        except OSError:  # no room: what it still holds is lost, and said once
            _drop(stream)
    return code


def _reader_gone() -> int:
    """After ``| head``: no traceback, not even from the interpreter's last flush."""
    _drop(sys.stdout)
    _drop(sys.stderr)
    return 128 + signal.SIGPIPE


def _drop(stream: TextIO) -> None:
    """Whatever the stream still holds, or is given, goes nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
