"""``studio``: serve the studio. The server itself lives in ``app.studio``."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.commands.common import EMBEDDED, method, whole
from core.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: this machine only)"
    )
    parser.add_argument("--port", type=whole, default=7860, help="port (default 7860)")
    parser.add_argument("--model", default=EMBEDDED, metavar="NAME|PATH", help="target")
    parser.add_argument("--drafter", type=Path, metavar="FOLDER", help="the drafter's checkpoint")
    parser.add_argument(
        "--method", dest="methods", type=method, action="append", default=[], metavar="FILE.py",
        help="offer a method of your own, or a DRAFTER+BUILDER, on the page; repeatable",
    )  # fmt: skip
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda, …")


def main(args: argparse.Namespace) -> int:
    if not 0 <= args.port < 1 << 16:
        raise UserError(f"the port must be 0 to 65535, not {args.port}")
    try:
        from app.studio import serve
    except ModuleNotFoundError as error:
        if error.name != "gradio":
            raise
        raise UserError("the studio needs gradio: pip install -r requirements.txt") from None
    serve(args.host, args.port, args.model, args.device, args.drafter, methods=args.methods)
    return 0
