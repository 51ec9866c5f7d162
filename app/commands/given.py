"""The texts of a command: prompts that the target answers, or answers that were served. Light."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from app.command_line import option
from app.commands.options import Prompts
from app.commands.prompts import prompts_of
from app.commands.states import StatesOptions
from app.terminal import one_line, say
from core.errors import UserError
from core.files import sha256

if TYPE_CHECKING:
    from analysis.collected.given import Answer
    from analysis.engines.texts import Written
    from core.decoding.along import Reading
    from core.models.language import Language


@dataclass(frozen=True, eq=False)
class Asked:
    """One text.

    prompt  the user's turn; "": the file of the served answer tells the prompt's token ids
    served  the answer; None: the target writes it
    states  a file of hidden states, which tells prompt and answer; None: the target runs
    """

    prompt: str
    served: Written | None = None
    states: Path | None = None

    @property
    def given(self) -> bool:
        """Whether the text is there, and the target does not write it."""
        return self.served is not None or self.states is not None

    @property
    def digest(self) -> str:
        """A digest of the prompt and the served answer."""
        if self.states is not None:
            return sha256(self.states)[:16]
        served = self.served
        told = (self.prompt, *((served.prompt, served.tokens, served.text) if served else ()))
        return hashlib.sha256(repr(told).encode("utf-8", "replace")).hexdigest()[:16]

    def read(self, args: Texts, language: Language, drafted: Sequence[int]) -> ReadText:
        """The text in the target's tokens; ``drafted``: layers that the drafters read. Raises
        UserError for one that the target cannot read."""
        if self.states is None:
            target = self.served.target if self.served else ""
            if self.served and target and target != language.name:
                say(
                    f"{self.served.name} names {one_line(target, 80)} as its target, and "
                    f"{language.name} reads it: what follows holds if they are one model"
                )
            ids = self._prompt_ids(language)
            return ReadText(ids, self.prompt or language.text(ids), self._answer(language))
        from analysis.collected.given import Answer

        reading = args.read(self.states, language, drafted)
        ids, new = reading.tokens[: reading.answer].tolist(), reading.tokens[reading.answer :]
        answer = Answer(tuple(new.tolist()), self.states.name, False, self.digest)
        return ReadText(ids, language.text(ids), answer, reading)

    def _prompt_ids(self, language: Language) -> list[int]:
        if self.served is None or self.served.prompt is None or self.prompt:
            return language.encode_chat(self.prompt)
        from core.decoding.decode import check_prompt

        check_prompt(self.served.prompt, language.vocabulary)
        return list(self.served.prompt)

    def _answer(self, language: Language) -> Answer | None:
        if self.served is None:
            return None
        from analysis.collected.given import Answer

        served, words = self.served, self.served.tokens is None
        tokens = language.encode(served.text or "") if words else served.tokens or ()
        made = Answer(tuple(tokens), served.name, words, self.digest)
        made.check(language.vocabulary)
        return made


@dataclass(frozen=True, eq=False)
class ReadText:
    """A text in a target's tokens.

    ids      of the prompt; ``words`` are its text
    answer   None: the target writes it
    reading  what the target said of the text elsewhere; None: it runs
    """

    ids: list[int]
    words: str
    answer: Answer | None
    reading: Reading | None = None


@dataclass(frozen=True, kw_only=True)
class Texts(StatesOptions, Prompts):
    """Prompts that the target answers, a text that another engine served, or one whose hidden
    states were kept."""

    title: ClassVar[str] = "a text as it was served"
    answer: Path | None = option(
        None,
        "take these answers in place of the target's own: responses of vLLM, SGLang or llama.cpp "
        "(.json, .jsonl), a trace, or plain text (.txt). If the file lacks the prompts' token "
        "ids, name as many prompts",
        metavar="FILE",
    )
    response: int | None = option(None, "only the file's N-th response (default: all)")


def asked_of(args: Texts, default: tuple[str, ...] = ()) -> list[Asked]:
    """List the texts that the options name.

    Raises UserError for none, or for prompts that do not fit the file.
    """
    if files := args.files():
        if args.answer is not None or args.response is not None or prompts_of(args, ()):
            raise UserError("--states gives the prompts and answers: name no others")
        return [Asked("", states=file) for file in files]
    if args.answer is None:
        if args.response is not None:
            raise UserError("--response chooses a response of --answer FILE: name the file")
        prompts = prompts_of(args, default)
        if not prompts:
            raise UserError("name a prompt (--prompt, --prompts) or a served text (--answer)")
        return [Asked(prompt) for prompt in prompts]
    from analysis.engines.texts import read_texts

    return _served(args.answer, read_texts(args.answer, args.response), prompts_of(args, ()))


def _served(path: Path, served: Sequence[Written], prompts: Sequence[str]) -> list[Asked]:
    """Each answer with its prompt."""
    if all(each.prompt is not None for each in served):
        if prompts:
            raise UserError(
                f"{path} tells its prompt's token ids: leave --prompt and --prompts out"
            )
        return [Asked("", each) for each in served]
    if len(prompts) != len(served):
        raise UserError(
            f"{path} does not tell its prompt's token ids: name {len(served)} with --prompt or "
            f"--prompts, not {len(prompts)}"
        )
    return [Asked(prompt, each) for prompt, each in zip(prompts, served, strict=True)]
