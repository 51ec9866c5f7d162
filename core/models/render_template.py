"""Renders chat templates: a process of its own, which may be killed (``chat_template``).

A line of JSON in, {"template", "variables"}; a line out, {"text"} or {"error", "line"}. Templates
see what transformers gives them: no more than Jinja's sandbox, whose values have no limits.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.sandbox import ImmutableSandboxedEnvironment

MEMORY = 512 << 20  # bytes of addresses
MAX_TEXT = 4 << 20  # characters


class Generation(Extension):
    """{% generation %}: marks what a model wrote, for training. Here it is only what is inside."""

    tags = {"generation"}  # noqa: RUF012 (as Jinja declares it)

    def parse(self, parser: Any) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def refuse(message: object) -> NoReturn:
    raise TemplateError(str(message))


def as_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """JSON without HTML's escapes, which Jinja's own filter writes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


@lru_cache(maxsize=8)
def compiled(template: str) -> Template:
    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    sandbox.filters["tojson"] = as_json
    sandbox.globals["raise_exception"] = refuse
    sandbox.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return sandbox.from_string(template)


def rendered(template: str, variables: dict[str, Any]) -> str:
    """Raises any error that a template may; MemoryError for a long text, too."""
    parts, length = list[str](), 0
    for part in compiled(template).generate(variables):
        parts.append(part)
        length += len(part)
        if length > MAX_TEXT:
            raise MemoryError
    return "".join(parts)


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"text": rendered(asked["template"], asked["variables"])}
    except MemoryError:
        return {"error": "it writes or holds too much"}
    except Exception as error:
        words = str(error)[:200] or type(error).__name__
        return {"error": words, "line": getattr(error, "lineno", None)}


def main() -> None:
    with suppress(ImportError, ValueError, OSError):  # where a system has no such limit
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
