"""Many recorded runs as one folder of files that any web host serves, and that opens from disk.

    index.html         the list of runs, the viewer of each, the comparison of several, the course
    runs/NAME.js       a run's pack; a page from disk loads scripts and nothing else
    learn.js           the course
    draftscope-run.js  the element <draftscope-run>, for pages of others

A run's name is made of its file's contents, so no name of a file becomes a path, and a link to a
run stays good when the site is made again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.labels import budget, set_apart, temperature
from app.export.offline import STYLES, TOOLS, data_block, frame, page
from app.export.packs import DETAILED, inert, packed_run, weight
from app.page_files import LEARN, css, enclosed
from app.trace_files import TraceFile
from app.view.comparison import CAUTIONS
from core.chat import last_message
from core.errors import UserError, reading, writing
from core.files import LOCK, remove, sha256
from core.journal import alone
from core.lines import Limits
from core.methods.registry import shown_title
from core.progress import Steps, part, silent
from core.traces.reader import read_trace
from core.traces.schema import Header, Trace, summary
from core.visible import flowing, visible

INDEX, RUNS, COURSE, ELEMENT = "index.html", "runs", "learn.js", "draftscope-run.js"
UNFINISHED = "unfinished"  # below the site: what is being written
MARK = '<meta name="generator" content="Draftscope">'
_RUN = re.compile(r"run-[0-9a-f]{16}\.js")
PROMPT, LABEL, APART = 200, 120, 60  # characters in the list
BARS = 96  # of a run's shape there
SITE = (*STYLES, *(f"learn/{name}" for name in LEARN), "offline/site.css")


@dataclass(frozen=True)
class WrittenSite:
    """A site's runs and bytes. ``left_out``: why a file is not in it; ``copies``: a sentence for
    each file that another one is a copy of."""

    runs: int
    size: int
    left_out: tuple[str, ...]
    copies: tuple[str, ...]


def write_site(
    folder: Path,
    files: Sequence[TraceFile],
    limits: Limits,
    plain: bool = False,
    report: Steps = silent,
) -> WrittenSite:
    """Write the site into its folder, which is made; a site that is there is replaced at the end.

    What a stopped call left is removed, and everything is made anew. ``report``: how much is done,
    of 1, and what is next. Raises UserError for a folder that holds anything else, or cannot be
    written, and where no file has a round to show.
    """
    _check(folder)
    made = folder / UNFINISHED
    with alone(made, "export"), writing(folder):
        _empty(made)
        (made / RUNS).mkdir()
        found, left_out, copies = dict[str, dict[str, Any]](), list[str](), list[str]()
        headers = dict[str, Header]()
        for at, file in enumerate(files):
            done = part(report, at, len(files), file.label)
            done(0)
            try:
                name, trace = _read(file, limits)
                if name in found:
                    copies.append(f"{file.label} is the same file as {found[name]['label']}")
                    continue
                pack = packed_run(trace, plain, weight(trace) <= DETAILED, done)
                (made / RUNS / f"{name}.js").write_text(_data(pack), "ascii")
            except UserError as error:
                left_out.append(f"{file.label}: {error}")
                continue
            found[name], headers[name] = _line(name, file, trace), trace.header
        if not found:
            raise UserError(f"there is nothing to show: {left_out[0]}")
        apart = set_apart(headers)
        for name, line in found.items():
            line["apart"] = visible(apart[name], APART) if apart[name] else ""
        _write_pages(made, list(found.values()))
        _publish(made, folder)
        _empty(made)
        remove(made)  # the lock last: once it is gone, another export may begin
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return WrittenSite(len(found), size, tuple(left_out), tuple(copies))


def _read(file: TraceFile, limits: Limits) -> tuple[str, Trace]:
    """The run's name in the site, and the run. Raises UserError for one that cannot be shown."""
    trace = read_trace(file.path, limits)
    if not trace.rounds:
        raise UserError("it holds no round")
    return f"run-{sha256(file.path)[:16]}", trace


def _data(text: str) -> str:
    """A script that hands over a text and does nothing else."""
    return f"draftscopeData({inert(text)});\n"


def _line(name: str, file: TraceFile, trace: Trace) -> dict[str, Any]:
    """Return what the list says of a run; None is not known."""
    header, numbers = trace.header, summary(trace.sound)
    return {
        "name": name,
        "label": visible(file.label, LABEL),
        "method": visible(shown_title(header.method)),
        "budget": budget(header),
        "temperature": temperature(header),
        "tau": numbers["tau"],
        "tokens": numbers["tokens"],
        "rounds": numbers["rounds"],
        "shape": _shape([each.accepted for each in trace.rounds]),
        "prompt": flowing(last_message(header.prompt_text), PROMPT),
    }


def _shape(accepted: Sequence[int]) -> dict[str, Any]:
    """A bar for each round or, of a long run, means of as many in a row as leave BARS of them."""
    each = -(-len(accepted) // BARS)
    bars = (accepted[at : at + each] for at in range(0, len(accepted), each))
    return {"each": each, "accepted": [round(sum(bar) / len(bar), 2) for bar in bars]}


def _write_pages(made: Path, lines: Sequence[dict[str, Any]]) -> None:
    from app.learn.course import course

    told = {"runs": lines, "cautions": CAUTIONS, "course": True}
    before, after = page(
        "Runs",
        enclosed("offline/site.js"),
        css(SITE),
        '<nav aria-label="Parts of this site"></nav>'
        f"<p>recorded rounds of speculative decoding</p>{TOOLS}",
        "<main></main>",
        # The data's files: 'self' is this host, and "file:" this folder opened from disk.
        scripts=" 'self' file:",
    )
    index = before.replace("<title>", f"{MARK}<title>", 1) + data_block("ds-site", inert(told))
    (made / INDEX).write_text(index + after, "utf-8")
    (made / COURSE).write_text(_data(inert(course())), "ascii")
    (made / ELEMENT).write_text(element_script(), "utf-8")


def element_script() -> str:
    """The script that defines <draftscope-run>: it holds the page of the frame around its data."""
    before, after = frame("A run")
    opened, between, closed = (data_block("ds-page", "|") + data_block("ds-run-0", "|")).split("|")
    parts = {
        "before": before + opened,
        "between": between,
        "after": closed + after,
        "told": {"runs": 1, "apart": [""], "cautions": CAUTIONS},
    }
    define = f'modules["offline/embed.js"].defineRun({inert(parts)});'
    return enclosed("offline/embed.js", define)


# ── the folder ───────────────────────────────────────────────────────────────────────────────────


def _check(folder: Path) -> None:
    """Raises UserError for a folder with anything but a site, whole or unfinished."""
    with reading(folder):
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is not a folder")
        other = next(_others(folder), None) if folder.exists() else None
    if other is not None:
        raise UserError(f"{folder} holds other things than a site: name a new or empty folder")


def _others(folder: Path) -> Iterator[Path]:
    """Find what is in the folder and not of a site."""
    for entry in folder.iterdir():
        if entry.name == RUNS and entry.is_dir() and not entry.is_symlink():
            yield from (each for each in entry.iterdir() if not _RUN.fullmatch(each.name))
        elif entry.name == INDEX and entry.is_file():
            with entry.open(encoding="utf-8", errors="replace") as file:
                if MARK not in file.read(2000):
                    yield entry
        elif entry.name not in (COURSE, ELEMENT, UNFINISHED):
            yield entry


def _empty(made: Path) -> None:
    for entry in made.iterdir():
        if entry.name != LOCK:
            remove(entry)


def _publish(made: Path, folder: Path) -> None:
    """Move what is whole to its place, the index last; then remove runs that it names no more."""
    names = {file.name for file in (made / RUNS).iterdir()}
    (folder / RUNS).mkdir(exist_ok=True)
    for name in [*(f"{RUNS}/{name}" for name in sorted(names)), COURSE, ELEMENT, INDEX]:
        (made / name).replace(folder / name)
    for old in (folder / RUNS).iterdir():
        if old.name not in names:
            old.unlink()
