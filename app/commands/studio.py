"""``studio``: serve the studio. The server itself lives in ``app.studio``."""

from __future__ import annotations

import argparse
from pathlib import Path

from app import trace_files
from app.commands import arguments
from app.commands.common import check_drafter, template_of
from app.terminal import say
from core.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces", type=Path, nargs="*", metavar="TRACE",
        help="traces (.jsonl or .jsonl.gz), or folders searched for them at any depth, such as a "
        "sweep's: the page lists them above its examples",
    )  # fmt: skip
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: this machine only)"
    )
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="answer requests for this host name too, such as a proxy's; repeatable",
    )  # fmt: skip
    arguments.add_number(parser, "--port", 7860, metavar="PORT")
    parser.add_argument(
        "--method", dest="methods", type=arguments.method, action="append", default=[],
        metavar="FILE.py",
        help="offer a method of your own, or a DRAFTER+BUILDER, on the page; repeatable",
    )  # fmt: skip
    arguments.add_model_options(parser)


def main(args: argparse.Namespace) -> int:
    if not 0 <= args.port < 1 << 16:
        raise UserError(f"the port must be 0 to 65535, not {args.port}")
    files = trace_files.find(args.traces)
    if files.note:
        say(f"draftscope: the page lists {files.note}")
    try:
        from app.studio import serve
        from app.studio.engine import ModelChoice
    except ModuleNotFoundError as error:
        if error.name != "gradio":
            raise
        raise UserError("the studio needs gradio: pip install -r requirements.txt") from None
    model = ModelChoice(args.model, args.device, check_drafter(args.drafter), template_of(args))
    serve(
        args.host, args.port, model,
        methods=args.methods, files=files, allow_hosts=args.allow_host,
    )  # fmt: skip
    return 1  # the server ended by itself, and said why; Ctrl-C is an exception
