"""Runs for programs: an endpoint of the page's Gradio API, as ``gradio_client`` calls it.

A program's run waits in the same queue as those of people, and is told as it grows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from app.studio.files import trace_bytes
from app.studio.methods import Methods, form_options
from app.studio.requested import DEFAULTS, requests_of
from app.studio.run import ENDED, FAILED, StudioRun
from app.studio.runs import Runs
from core.errors import UserError
from core.methods.registry import find_method
from core.traces.schema import summary
from core.visible import flowing

LOOK = 0.1  # seconds between two looks at a run
D: dict[str, Any] = DEFAULTS


def decoding(runs: Runs, methods: Methods) -> Callable[..., Iterator[dict[str, Any]]]:
    """The endpoint ``decode``. Gradio reads its parameters off their types."""

    def decode(
        prompt: str,
        method: str = D["method"],
        budget: int | None = D["budget"],
        options: dict[str, Any] = {},  # noqa: B006 - Gradio sends it as JSON, nothing changes it
        max_new_tokens: int = D["max_new_tokens"],
        temperature: float = D["temperature"],
        top_k: int = D["top_k"],
        top_p: float = D["top_p"],
        seed: int = D["seed"],
    ) -> Iterator[dict[str, Any]]:
        """Decode a prompt. Every answer has the state, the text so far, its rounds and their τ; the
        last one also the trace, as lines that every command and the page open.

        budget   draft nodes of a round; null: as many as the page offers for the method
        options  of the method, by name
        """
        asked = {name: value for name, value in locals().items() if name in D}
        [request] = requests_of(methods, [asked])
        if unknown := sorted(
            {*options} - {o.name for o in form_options(find_method(request.method))}
        ):
            raise UserError(f"{method} has no option {flowing(unknown[0], 40)!r} here")
        [ticket] = runs.submit(request)
        run = runs.get(ticket)
        assert run is not None
        with runs.watching([ticket]):
            try:
                yield from _news(run)
            finally:
                runs.stop(ticket)  # whoever asked went away, unless it has ended

    return decode


def _news(run: StudioRun) -> Iterator[dict[str, Any]]:
    """An answer whenever there are more rounds, and the last with the trace. Raises UserError as
    the run failed."""
    told = -1
    while (state := run.state) not in ENDED:  # before the rounds: they are complete then
        if len(run.rounds) > told:
            told = len(run.rounds)
            yield _answer(run)
        time.sleep(LOOK)
    if state == FAILED:
        raise UserError(run.message)
    yield _answer(run) | {"trace": trace_bytes(run.trace(), ".jsonl").decode()}


def _answer(run: StudioRun) -> dict[str, Any]:
    rounds = list(run.rounds)
    text = "".join(record.text(token) for record in rounds for token in record.committed)
    if rounds:  # prefill's own token comes first
        text = rounds[0].text(int(rounds[0].draft.tokens[0])) + text
    found = summary(rounds)
    return {"state": run.state, "text": text, "rounds": found["rounds"], "tau": found["tau"]}
