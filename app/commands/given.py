"""The texts of a command: prompts that the target answers, or answers that were served. Light."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from analysis.engines.texts import Written, read_texts
from app.command_line import option
from app.commands.options import Prompts
from app.commands.prompts import prompts_of
from core.errors import UserError

if TYPE_CHECKING:
    from analysis.collected.given import Answer
    from core.models.language import Language


@dataclass(frozen=True, eq=False)
class Asked:
    """One text.

    prompt  the user's turn; "": the file of the served answer tells the prompt's token ids
    served  the answer; None: the target writes it
    """

    prompt: str
    served: Written | None = None

    @property
    def digest(self) -> str:
        """Of the prompt and the served answer."""
        served = self.served
        told = (self.prompt, *((served.prompt, served.tokens, served.text) if served else ()))
        return hashlib.sha256(repr(told).encode("utf-8", "replace")).hexdigest()[:16]

    def prompt_ids(self, language: Language) -> list[int]:
        """Raises UserError for ids that the target cannot read."""
        if self.served is None or self.served.prompt is None or self.prompt:
            return language.encode_chat(self.prompt)
        from core.decoding.decode import check_prompt

        check_prompt(self.served.prompt, language.vocabulary)
        return list(self.served.prompt)

    def prompt_text(self, language: Language) -> str:
        return self.prompt or language.text(self.prompt_ids(language))

    def answer(self, language: Language) -> Answer | None:
        """The served answer in this target's tokens. Raises UserError for one it cannot read."""
        if self.served is None:
            return None
        from analysis.collected.given import Answer

        served, words = self.served, self.served.tokens is None
        tokens = language.encode(served.text or "") if words else served.tokens or ()
        made = Answer(tuple(tokens), served.name, words, self.digest)
        made.check(language.vocabulary)
        return made


@dataclass(frozen=True, kw_only=True)
class Texts(Prompts):
    """Prompts that the target answers, or a text that another engine served."""

    title: ClassVar[str] = "a text as it was served"
    answer: Path | None = option(
        None,
        "take these answers in place of the target's own: responses of vLLM, SGLang or llama.cpp "
        "(.json, .jsonl), a trace, or plain text (.txt). Where the file does not tell the prompt's "
        "token ids, name as many prompts",
        metavar="FILE",
    )
    response: int | None = option(None, "the file's N-th response alone (default: all)")


def asked_of(args: Texts, default: tuple[str, ...] = ()) -> list[Asked]:
    """What the options name. Raises UserError for nothing, or prompts that do not fit the file."""
    if args.answer is None:
        if args.response is not None:
            raise UserError("--response chooses a response of --answer FILE: name the file")
        prompts = prompts_of(args, default)
        if not prompts:
            raise UserError("name a prompt (--prompt, --prompts) or a served text (--answer)")
        return [Asked(prompt) for prompt in prompts]
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
