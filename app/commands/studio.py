"""``studio``: serve the studio. The server itself lives in ``app.studio``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app import trace_files
from app.command_line import option, words
from app.commands.common import check_drafter, template_of
from app.commands.options import Model, method
from app.object_stores import here
from app.terminal import say
from core.errors import UserError
from core.files import scratch
from core.ranges import Range


@dataclass(frozen=True, kw_only=True)
class Options(Model):
    """Open the studio in the browser."""

    traces: tuple[Path, ...] = words(
        "traces (.jsonl or .jsonl.gz), or folders with traces at any depth, such as that of "
        "`grid run`; the page lists them above its examples",
        (),
        read=here,
    )
    host: str = option("127.0.0.1", "address to listen on; by default this machine only")
    allow_host: tuple[str, ...] = option(
        (), "answer requests for this host name too, such as a proxy's", metavar="NAME"
    )
    token_hours: int = option(
        24,
        "on a network: hours that the printed token is valid; then another is printed",
        Range(1, 8760),
    )
    port: int = option(7860, "port to listen on; 0: any that is free", Range(0, (1 << 16) - 1))
    methods: tuple[str, ...] = option(
        (),
        "offer methods of your own, FILE.py or DRAFTER+BUILDER, on the page",
        read=method,
        metavar="METHOD",
    )


def main(args: Options) -> int:
    files = trace_files.find_traces(args.traces, empty=True)
    if files.note:
        say(f"draftscope: the page lists {files.note}")
    with temporary_files():
        _serve(args, files)
    return 1  # the server ended by itself, and said why; Ctrl-C is an exception


@contextmanager
def temporary_files() -> Iterator[None]:
    """Have this process make its temporary files, Gradio's uploads among them, in a folder that
    goes at the end. What killed studios left goes, too. Gradio makes a folder when it is imported,
    which must be within."""
    with scratch(Path(tempfile.gettempdir()), "draftscope-studio-") as folder:
        before, tempfile.tempdir = tempfile.tempdir, str(folder)
        try:
            yield
        finally:
            tempfile.tempdir = before


def _serve(args: Options, files: trace_files.TraceFiles) -> None:
    try:
        from app.studio import serve
        from app.studio.access import Access
        from app.studio.engine import ModelChoice
    except ModuleNotFoundError as error:
        if error.name != "gradio":
            raise
        raise UserError("the studio needs gradio: pip install -r requirements.txt") from None
    model = ModelChoice(args.model, args.device, check_drafter(args.drafter), template_of(args))
    access = Access.of(args.host, args.allow_host, args.token_hours)
    serve(args.host, args.port, model, args.methods, files, access)
