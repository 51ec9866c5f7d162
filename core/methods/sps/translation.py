"""Two vocabularies: which tokens a draft model shares with a target, and a text in its own tokens.

Token-level intersection (TLI, arXiv 2502.05202): q is the draft model's distribution
over the tokens that both vocabularies hold, renormalised; every other token has q = 0. Tokens are
matched as transformers' ``AssistantToTargetTranslator`` matches them: by their strings, where the
sign of a leading blank ("Ġ", "▁") counts as one.

Light: never torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from core.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from core.models.language import Vocabulary

BEFORE = "\n"  # text that stands before a token's, so that the token is not the start of a text


def shared_tokens(target: Vocabulary, draft: Vocabulary) -> dict[int, int]:
    """The draft model's id of each token of the target that it has too, by the target's id."""
    of_target = target.tokenizer.get_vocab()
    sign, own = _blank(target.tokenizer), _blank(draft.tokenizer)
    found, exact = dict[int, int](), set[int]()
    for word, id_ in draft.tokenizer.get_vocab().items():
        same = sign is None or own is None or sign == own or not word.startswith(own)
        spelt = word if same else f"{sign}{word.removeprefix(str(own))}"
        id_of_target = of_target.get(spelt)
        if id_of_target is None or id_of_target >= target.size or id_ >= draft.size:
            continue
        if id_of_target not in exact:  # a token of the same string has precedence
            found[id_of_target] = id_
        if same:
            exact.add(id_of_target)
    return dict(sorted(found.items()))


def _blank(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """The character that stands for a blank before a word; None: the tokenizer drops blanks."""
    ids = tokenizer(" ", add_special_tokens=False).input_ids
    first: Any = tokenizer.convert_ids_to_tokens(ids[0]) if ids else ""
    return first[:1] or None


@dataclass(frozen=True, eq=False)
class Translation:
    """A target's tokens in a draft model's.

    Each token is translated by itself, so that a text's translation grows with the text and q
    depends on the text alone. A token that the draft model lacks is its text in the draft model's
    tokens; bytes that are not a character by themselves are spelled as U+FFFD. Special ones that it
    lacks are left out. (transformers does so with every new token, and encodes the prompt's text
    anew as a whole, without special tokens.)

    shared  as ``shared_tokens`` gives it
    size    V, the target's number of token ids
    start   what the draft model's tokenizer puts before a text
    alone   a token for a text of which the draft model sees none
    spell   the tokens of a token that is not shared
    """

    shared: Mapping[int, int]
    size: int
    start: tuple[int, ...]
    alone: int
    spell: Callable[[int], Sequence[int]]
    _spelt: dict[int, tuple[int, ...]] = field(default_factory=dict, init=False)

    @staticmethod
    def of(target: Vocabulary, draft: Vocabulary, where: str) -> Translation:
        """Raises UserError for a draft model that has no token of the target's; ``where`` it is."""
        shared = shared_tokens(target, draft)
        if not shared:
            raise UserError(
                f"the draft model in {where} has no token of the target's: it could draft nothing"
            )
        end: Any = draft.tokenizer.eos_token_id
        alone = end if isinstance(end, int) else 0
        start, speller = _start(draft.tokenizer), _Speller(target, draft)
        return Translation(shared, target.size, start, alone, speller)

    def ids(self, token: int) -> tuple[int, ...]:
        """A token in the draft model's; () for one that it does not see."""
        if token in self.shared:
            return (self.shared[token],)
        if token not in self._spelt:
            self._spelt[token] = tuple(self.spell(token))
        return self._spelt[token]

    def text(self, tokens: Sequence[int]) -> list[int]:
        """A text from its first token on, with what the draft model's own texts start with."""
        found = [id_ for token in tokens for id_ in self.ids(token)]
        started = tuple(found[: len(self.start)]) == self.start
        whole = found if started else [*self.start, *found]
        return whole or [self.alone]


class _Speller:
    """The text of a token of the target in the draft model's tokens."""

    def __init__(self, target: Vocabulary, draft: Vocabulary):
        self._target, self._draft = target, draft
        added = target.tokenizer.added_tokens_decoder.items()
        self._special = {id_ for id_, token in added if token.special}
        self._before = self._encoded(BEFORE)

    def __call__(self, token: int) -> list[int]:
        if token in self._special:
            return []
        text = self._target.text_behind(token)
        behind, count = self._encoded(BEFORE + text), len(self._before)
        found = behind[count:] if behind[:count] == self._before else self._encoded(text)
        return [id_ for id_ in found if id_ < self._draft.size]

    def _encoded(self, text: str) -> list[int]:
        encode = self._draft.tokenizer
        found = encode(text, add_special_tokens=False, split_special_tokens=True)
        return list(found.input_ids)


def _start(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    whole = list(tokenizer("a").input_ids)
    bare = list(tokenizer("a", add_special_tokens=False).input_ids)
    places = range(len(whole) - len(bare) + 1)
    at = next((at for at in places if whole[at : at + len(bare)] == bare), 0)
    return tuple(whole[:at])
