"""The command line: which commands there are, and how each of them may end.

Exit codes: 0 done · 1 a check found something · 2 bad input, with one sentence on stderr ·
130 stopped with Ctrl-C · 141 the reader of our output went away · 143 stopped by SIGTERM.

A command is a module with a dataclass ``Options``, whose docstring is its help, and
``main(options) -> int``. It is imported when it is chosen, so that ``--help`` and ``trace show``
never wait for torch.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import TextIO

from app.interrupts import sigterm_heard
from core import VERSION
from core.errors import UserError, WrongKind, unwritable

PROGRAM = "python -m app"


class Command:
    """One command: what it does, and examples of its words."""

    def __init__(self, about: str, *examples: str):
        self.about, self.examples = about, examples


GROUPS: dict[str, dict[str, Command]] = {
    "look": {
        "studio": Command(
            "open the studio in the browser (the default without a command)",
            "studio",
            "studio runs/s",
            "studio --port 7861 --model Qwen/Qwen3-0.6B --device cuda",
        ),
        "trace show": Command(
            "show a trace in the terminal: its rounds, or one round's tree",
            "trace show run.jsonl",
            "trace show run.jsonl --round 3",
        ),
        "trace check": Command(
            "say in one sentence whether a file is a readable trace",
            "trace check run.jsonl.gz",
            "trace check runs/",
        ),
        "trace export": Command(
            "write a trace as an offline page, site, figure, graph, table or timeline",
            "trace export run.jsonl --to html",
            "trace export runs/ --to site --out site",
            "trace export run.jsonl --to pdf --round 3 --ground white --legend --column 3.25in",
            "trace export run.jsonl --to csv --table nodes --out nodes.csv",
        ),
        "trace import": Command(
            "say what an engine's counts of drafts mean; read DDTree's saved trees",
            "trace import vllm.log",
            "trace import responses.jsonl --json",
            "trace import trees.json --out trees.jsonl.gz",
        ),
        "trace pack": Command(
            "pack the rounds of many traces into columns, for quick reports",
            "trace pack runs/served --out runs/served.pack",
        ),
        "trace compare": Command(
            "compare texts by two engines: where they first differ, and whether it is a tie",
            "trace compare runs/ours runs/served --compute",
            "trace compare run.jsonl.gz vllm-response.json",
            "trace compare ours.jsonl.gz theirs.jsonl.gz --json",
        ),
    },
    "decode": {
        "run": Command(
            "decode prompts with one method: text, τ, acceptance, tokens/s",
            'run ddtree --prompt "Why is the sky blue?" --budget 16',
            'run ddtree --prompt "Write a haiku." --temperature 1 --seed 7 --trace run.jsonl',
            "run dflash --prompts questions.jsonl --json > answers.jsonl",
        ),
        "denoise": Command(
            "write with a masked-diffusion model, plainly or with Spiffy's drafts",
            'denoise --prompt "Why is the sky blue?" --spiffy 10',
            "denoise --prompts questions.jsonl --table --json > speedups.json",
        ),
    },
    "measure": {
        "report": Command(
            "say what traces show: τ, acceptance and TVD by depth, causes, calibration",
            "report run.jsonl",
            "report runs/ --out tables --to csv parquet --html",
            "report runs/s/traces --trained runs/one/dflash/accuracy.json",
        ),
        "audit": Command(
            "check that a method writes exactly what plain decoding writes",
            "audit ddtree",
            "audit ddtree --prompts questions.txt --budget 7 64 --temperature 1",
        ),
        "bench": Command(
            "time methods and budgets against plain decoding and generate()",
            "bench",
            "bench ddtree --budget 8 16 32 --max-new-tokens 128 --repeats 5",
        ),
        "grid run": Command(
            "run methods × budgets × prompts × seeds into one table and traces (resumable)",
            "grid run ar ddtree treeflash --out runs/s --budget 16 64 --prompts questions.jsonl",
            "grid run ddtree --out runs/s --budget 8 16 --temperature 1 --seed 0 1 2 --ray auto",
        ),
        "grid table": Command(
            "measure methods on the same prompts, greedily and at T = 1 (resumable)",
            "grid table ar ddtree treeflash eagle3 --out runs/t --prompts questions.jsonl",
        ),
        "grid compare": Command(
            "compare checkpoints of one drafter on the same texts",
            "grid compare ddtree ddtree@runs/mine --out runs/c --prompts questions.jsonl",
            "grid compare ddtree@runs/before ddtree@runs/after --out runs/c --json",
        ),
    },
    "ask": {
        "collect": Command(
            "run the drafters at every token of one text, for whatif",
            'collect --out sky.safetensors --prompt "Why is the sky blue?"',
            "collect ddtree treeflash --out texts --prompts questions.jsonl",
        ),
        "whatif": Command(
            "simulate methods, budgets and options on a collected text, without the model",
            "whatif sky.safetensors",
            "whatif sky.safetensors --methods treeflash --budget 16 64 --set candidates=4",
        ),
        "cost": Command(
            "measure what a round costs here, and name the budget that pays",
            "cost sky.safetensors --methods ddtree",
            "cost sky.safetensors --methods treeflash --check",
        ),
        "advise": Command(
            "say which draft length or tree budget pays at which batch, and the flags for it",
            "advise run.jsonl.gz --cost steps.csv",
            "advise vllm.log --cost steps.csv --batch 1 8 32 --out runs/advice",
            "advise texts --methods ddtree --cost cost.json --json",
        ),
        "calibrate": Command(
            "measure TVD and coverage of drafters by depth, against the marginal",
            "calibrate --out runs/calibration",
            "calibrate dflash treeflash --out runs/c --anchors 192 --continuations 64",
        ),
        "diagnose": Command(
            "why is my drafter bad? try its wiring under every named mistake",
            "diagnose ddtree --model qwen3-8b --drafter my-drafter",
            "diagnose ddtree --prompts questions.jsonl --json > wiring.json",
            "diagnose eagle3@my-drafter --model org/large --states hidden_states/",
        ),
    },
    "prepare": {
        "train": Command(
            "train a drafter for a target, or the denoiser (resumable)",
            "train --out runs/one --prompts prompts.jsonl --synthesise 500 --minutes 90",
            "train treeflash --out runs/one --minutes 30",
            "train --out runs/two --start shipped --prompts more.jsonl --minutes 90",
        ),
        "model fetch": Command(
            "make the embedded target ready, or another preset",
            "model fetch",
            "model fetch qwen3-4b",
        ),
        "model doctor": Command(
            "show versions, device, models ready, methods, and what is missing",
            "model doctor",
            "model doctor qwen3-4b",
        ),
        "model export": Command(
            "write a drafter in its official format",
            "model export --out runs/drafter-official",
        ),
        "model ngram": Command(
            "count the n-grams of any text into a store, or convert a .trie",
            "model ngram questions.jsonl notes/ --out ngrams.safetensors --min-count 2",
            "model ngram small.trie --out qwen3.safetensors --model Qwen/Qwen3-4B",
        ),
        "model graph": Command(
            "find the draft graphs that save a diffusion model most calls (resumable)",
            "model graph --out graphs --prompts questions.jsonl --count 50",
        ),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
NOUNS = {
    "trace": "show, check, export, import, pack or compare traces",
    "grid": "run or compare many methods, budgets, prompts and checkpoints",
    "model": "fetch, check, convert and prepare models and their parts",
}
RENAMED = {  # what commands were called
    "replay": "trace show",
    "validate": "trace check",
    "export": "trace export",
    "import": "trace import",
    "compare-texts": "trace compare",
    "trained": "report --trained",
    "sweep": "grid run",
    "table": "grid table",
    "compare-drafters": "grid compare",
    "fetch": "model fetch",
    "doctor": "model doctor",
    "export-checkpoint": "model export",
    "ngram": "model ngram",
    "find-graph": "model graph",
    "calibrate-graph": "model graph",
}
EXAMPLES = (  # of the overview
    'run ddtree --prompt "Why is the sky blue?" --budget 16 --trace run.jsonl',
    "trace show run.jsonl --round 3",
    "report run.jsonl",
    "model doctor",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    _prepare_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    with sigterm_heard() as sigterm:
        try:
            return _ended(words)
        except KeyboardInterrupt as stop:
            number = signal.SIGINT if sigterm.came is None else signal.SIGTERM
            return _complain("; ".join(["stopped", *map(str, stop.args)]), 128 + number)


def _ended(words: list[str]) -> int:
    """Run the command to its end; returns the exit code. Only a signal is an exception."""
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except WrongKind as error:
        from analysis.kinds import explained

        return _complain(explained(error), 2)
    except UserError as error:
        return _complain(str(error), 2)
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
    if words[0] in NOUNS and words[1:2] in (["-h"], ["--help"]):
        print(verbs(words[0]))
        return 0
    name, rest = named(words)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # libraries warn their authors, not our users
    from app.command_line import run

    module = importlib.import_module(f"app.commands.{module_of(name)}")
    examples = [f"{PROGRAM} {example}" for example in COMMANDS[name].examples]
    return run(module.Options, module.main, f"{PROGRAM} {name}", examples, rest)


def named(words: Sequence[str]) -> tuple[str, list[str]]:
    """The command that the words begin with, and the others. Raises UserError."""
    first, name = words[0], " ".join(words[:2])
    if name in COMMANDS:
        return name, list(words[2:])
    if first in COMMANDS:
        return first, list(words[1:])
    if first in NOUNS:
        said = f"`{first}` needs a verb" if len(words) < 2 else f"there is no command {name!r}"
        names = [
            each.removeprefix(f"{first} ") for each in COMMANDS if each.startswith(f"{first} ")
        ]
        raise UserError(f"{said}: choose one of {', '.join(names)}")
    if first in RENAMED:
        new = RENAMED[first]
        raise UserError(f"`{first}` is `{new}` now (see {PROGRAM} {new.split(' --')[0]} --help)")
    names = dict.fromkeys(each.split()[0] for each in COMMANDS)
    raise UserError(f"there is no command {first!r}: choose one of {', '.join(names)}")


def module_of(name: str) -> str:
    """A command's module in ``app.commands``."""
    return "trace.import_" if name == "trace import" else name.replace(" ", ".")


def overview() -> str:
    """The text of ``python -m app --help``: one screen."""
    lines = [
        "Draftscope: real speculative decoding, with every draft tree in sight.",
        "",
        f"usage: {PROGRAM} [COMMAND] [OPTIONS]",
    ]
    for title, group in GROUPS.items():
        lines += ["", f"{title}:"]
        nouns = dict.fromkeys(name.split()[0] for name in group)
        lines += [f"  {noun:<11}{NOUNS.get(noun) or group[noun].about}" for noun in nouns]
    lines += ["", "examples:", *(f"  {PROGRAM} {example}" for example in EXAMPLES)]
    return "\n".join([*lines, "", f"See {PROGRAM} COMMAND --help for each."])


def verbs(noun: str) -> str:
    """The text of ``python -m app NOUN --help``."""
    own = {name: each for name, each in COMMANDS.items() if name.split()[0] == noun}
    lines = [f"usage: {PROGRAM} {noun} VERB [OPTIONS]", "", f"{NOUNS[noun].capitalize()}.", ""]
    lines += [f"  {name.split()[1]:<11}{each.about}" for name, each in own.items()]
    return "\n".join([*lines, "", f"See {PROGRAM} {noun} VERB --help for each."])


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
    from core.visible import flowing

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
    """Send all that the stream still holds, or is given later, to nowhere."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
