"""Work of the studio's worker that has no rounds: collecting a text for What-if, and diagnosing.

The worker does it as it decodes runs: one after the other, with progress, and stopped when the page
is gone. A page begins it, follows it and stops it by a ticket. What it makes lies in a file in a
folder of the server's, at the request's ``path``.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any, TypeVar

from analysis.labels import budget, sampling
from app.studio import shipped
from app.studio.engine import ELSEWHERE, CollectRequest, DiagnoseRequest, Request
from app.studio.methods import Methods
from app.studio.questions import OfRun, Question, Route
from app.studio.routes import GONE
from app.studio.run import DONE
from app.studio.runs import Runs
from core.chat import last_message
from core.errors import UserError
from core.files import remove
from core.json_input import read_json
from core.methods.registry import find_method, shown_title
from core.rounds.round import new_tokens
from core.traces.schema import Header
from core.visible import flowing

MOST_TOKENS = 64  # of the collected text: a minute on two cores
MAX_TITLE = 40  # characters
MAX_SHOWN = 600  # characters of a prompt and of a text that is being collected
KEPT = 32  # files of a kind that stay when another one is begun

T = TypeVar("T", bound=CollectRequest | DiagnoseRequest)


class Background:
    """The queue of runs as a queue of other work."""

    def __init__(self, runs: Runs, name: str):
        self.runs = runs
        self._folder = tempfile.TemporaryDirectory(prefix=f"draftscope-{name}-")
        self.folder = Path(self._folder.name)

    def begin(self, request: Request) -> str:
        """The work's ticket; of what was made before, the last used stays. Raises UserError when
        too much waits."""
        with suppress(FileNotFoundError):  # the worker gives one its name
            for old in sorted(self.folder.iterdir(), key=os.path.getmtime)[:-KEPT]:
                remove(old)
        (ticket,) = self.runs.submit(request)
        return ticket

    def finished(self, question: OfRun, kind: type[T], otherwise: str) -> T:
        """The request of finished work whose file is there. Raises UserError, with ``otherwise``,
        for anything else."""
        run = self.runs.get(question.ticket)
        if run is None or not isinstance(run.request, kind) or run.state != DONE:
            raise UserError(otherwise)
        try:
            os.utime(run.request.path)  # it was used
        except OSError:
            raise UserError(otherwise) from None
        return run.request


class Collecting:
    """Collect the prompt of a run on view for What-if. A second question about it finds the file.

    ``add`` opens a finished file in What-if, if it is not open there, by the name that it has here:
    nobody can guess it.
    """

    def __init__(self, runs: Runs, methods: Methods, add: Callable[[Path, str], object]):
        self._runs, self._methods, self._add = runs, methods, add
        self._work, self._secret = Background(runs, "collected"), secrets.token_hex(16)

    def routes(self) -> dict[str, Route[Any]]:
        """Without those that every view of runs has."""
        return {
            "collect": Route(OfRun, self._collect),
            "collected": Route(OfRun, self._collected),
        }

    def _collect(self, question: OfRun) -> Any:
        """Begin, for the run of a ticket: another ticket, of the work, the file's name in What-if
        once that is done, and the run's setting, prompt and text."""
        run = self._runs.get(question.ticket)
        if run is None or run.header is None:
            return GONE
        rounds = list(run.rounds)
        tokens = new_tokens(rounds)
        request = self._request(run.header, tokens)
        ticket, file = self._work.begin(request), request.path.stem
        setting = {"method": run.header.method, "budget": budget(run.header)}
        first = rounds[0].text(tokens[0]) if rounds else ""  # of the prompt's own pass
        written = first + "".join(each.text(token) for each in rounds for token in each.committed)
        told = {
            "method": shown_title(run.header.method),
            "prompt": flowing(last_message(run.header.prompt_text), MAX_SHOWN),
            "text": flowing(written, MAX_SHOWN),
        }
        return {"ticket": ticket, "file": file, "setting": setting, "made": run.made, **told}

    def _request(self, header: Header, text: Sequence[int]) -> CollectRequest:
        """Raises UserError for a run whose text nobody here can write again."""
        if not header.model.get("name"):
            raise UserError(
                "this trace does not tell which target wrote it, and What-if needs that very "
                f"target: {ELSEWHERE}"
            )
        if not (header.prompt_ids or header.prompt_text):
            raise UserError(
                "this trace does not hold its prompt, and What-if begins with it: "
                f"{ELSEWHERE}; add --prompt"
            )
        rule = sampling(header)
        tokens = min(MOST_TOKENS, max(2, header.stated("max_new_tokens", int) or MOST_TOKENS))
        methods = tuple(_listable([header.method, *shipped.COLLECTED], self._methods))
        of = (header.prompt_text, header.prompt_ids, dict(header.model), header.tokenizer_hash)
        key = repr((self._secret, of, astuple(rule), tokens, methods))
        name = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:20]
        path = self._work.folder / f"{name}.safetensors"
        return CollectRequest(header, path, methods, tokens, rule, tuple(text))

    def _collected(self, question: OfRun) -> Any:
        """Return what finished work made: the file's name in What-if, a title, and where its text
        leaves the run's."""
        otherwise = "this text is not collected: ask for it again"
        request = self._work.finished(question, CollectRequest, otherwise)
        name = request.path.stem
        self._add(request.path, name)
        title = flowing(last_message(request.prompt), MAX_TITLE) or "the run's text"
        return {"file": name, "title": title, "apart": _apart(request)}


def _apart(request: CollectRequest) -> str:
    """How much of the run's text the collected one has, in words; "": all of it."""
    from analysis.collected.collection import Collection

    made = Collection.load(request.path)
    mine, its = made.tokens[made.answer : made.end].tolist(), request.text
    pairs = zip(mine, its, strict=False)
    at = next((at for at, (own, its_own) in enumerate(pairs, 1) if own != its_own), None)
    if at is not None:
        return (
            f"The text written here leaves the run's at new token {at}. From there on, what is "
            "shown holds for the text written here only."
        )
    if len(mine) >= len(its):
        return ""
    return (
        f"These are the first {len(mine)} of the run's {len(its)} new tokens. τ and all below is "
        "of these alone."
    )


def _listable(names: Iterable[str], methods: Methods) -> Iterable[str]:
    """The methods that the studio offers and a file can hold, one for each drafter."""
    from analysis.collected.collection import check_listable, drafter_key

    found: dict[str, str] = {}
    for name in names:
        try:
            if methods.choice(name) is not None:
                check_listable(name)
                found.setdefault(drafter_key(name), name)
        except UserError:
            continue
    return found.values()


class Diagnose(Question, frozen=True):
    method: str | None = None


class Diagnosing:
    """Diagnose a drafter, as the command ``diagnose`` does."""

    def __init__(self, runs: Runs, methods: Methods):
        self._work, self._methods = Background(runs, "diagnosed"), methods

    def routes(self) -> dict[str, Route[Any]]:
        """Without those that every view of runs has."""
        return {
            "drafters": Route(Question, lambda _: {"methods": self._drafters()}),
            "diagnose": Route(Diagnose, self._diagnose),
            "diagnosed": Route(OfRun, self._diagnosed),
        }

    def _drafters(self) -> list[list[str]]:
        """(name, title) of the methods whose drafter has weights, and so tells q."""
        infos = [
            (find_method(name).drafter_info, title, name) for title, name in self._methods.titles
        ]
        return [[name, title] for info, title, name in infos if info and info.checkpoint]

    def _diagnose(self, question: Diagnose) -> Any:
        method = question.method
        if method not in [name for name, _ in self._drafters()]:
            raise UserError("this page does not offer that drafter")
        path = self._work.folder / f"{secrets.token_hex(8)}.json"
        return {"ticket": self._work.begin(DiagnoseRequest(str(method), path))}

    def _diagnosed(self, question: OfRun) -> Any:
        """Return the JSON that ``diagnose --json`` prints."""
        otherwise = "this diagnosis is not there: ask for it again"
        request = self._work.finished(question, DiagnoseRequest, otherwise)
        return read_json(request.path)
