"""Chat templates: programs that come with a model's files, so they are given little to harm with.

A template is rendered in a process of its own (``render_template``), with limits on its memory and
its text, and killed after ``SECONDS``: Jinja's sandbox alone bounds no string, number or loop.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from core.chat import Chat
from core.errors import UserError

SECONDS = 5.0  # for one text; a usual one takes a millisecond
RENDERER = Path(__file__).with_name("render_template.py")


class Renderer:
    """The process, which begins with the first template and ends with this one's."""

    def __init__(self, seconds: float = SECONDS):
        self._seconds, self._lock = seconds, threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """Raises UserError where the template is broken, refuses, or takes too much."""
        line = json.dumps({"template": template, "variables": dict(variables)})
        with self._lock:
            found = self._asked(line)
        if found is None:
            raise UserError(f"the chat template was stopped after {self._seconds:g} seconds")
        if "text" not in found:
            where = f" (line {found['line']})" if found.get("line") else ""
            words = " ".join(str(found["error"]).split())
            raise UserError(f"the chat template cannot be used{where}: {words}")
        return found["text"]

    def _asked(self, line: str) -> dict[str, Any] | None:
        """The answer to a line; None where the process ended instead."""
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        clock = threading.Timer(self._seconds, process.kill)
        clock.daemon = True
        clock.start()
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())
        except (OSError, ValueError):  # the pipe broke, or the line did
            _end(process)
            return None
        finally:
            clock.cancel()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            # -P: modules beside the script do not hide those of Python
            command = [sys.executable, "-P", str(RENDERER)]
            pipe = subprocess.PIPE
            try:
                self._process = subprocess.Popen(
                    command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, encoding="ascii"
                )
            except OSError as error:
                why = error.strerror or error
                raise UserError(f"the chat template cannot be rendered: {why}") from None
            weakref.finalize(self, _end, self._process)
        return self._process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # what was not written any more
            assert pipe is not None
            pipe.close()
    process.wait()


@cache
def _renderer() -> Renderer:
    return Renderer()


def render_chat(tokenizer: Any, chat: Chat, answer: bool = True, **options: Any) -> str:
    """The text of a chat in a tokenizer's chat template; with ``answer`` it goes on to where the
    answer begins. ``options`` are the template's own variables; those of the chat come first.

    Raises UserError as ``Renderer.render`` does.
    """
    template = tokenizer.chat_template
    if isinstance(template, dict):  # several, by their uses
        if "default" not in template:
            raise UserError("the tokenizer has several chat templates, and none is the default")
        template = template["default"]
    variables = {
        **tokenizer.special_tokens_map,
        "messages": list(map(dict, chat.messages)),
        "tools": None,
        "documents": None,
        "add_generation_prompt": answer,
        **options,
        **chat.variables,
    }
    return _renderer().render(template, variables)
