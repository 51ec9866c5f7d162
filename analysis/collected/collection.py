"""A file of the drafters' lists at every token of one text, so that what-if needs no model.

A collected file is ``.safetensors`` with a JSON header, memory-mapped, never executed:

    tokens            [T]           prompt, new text, and a few of the target's tokens after it.
                                    The new text is the target's own, or given (``Given``)
    target.ids        [T − a − 1, J]  the target's best tokens after every token of the new text
    target.log_p      [T − a − 1, J]  (a given text's own tokens need not be among them)
    NAME.ids          [P, L, K]     a drafter's best tokens per depth, best first, for a round whose
    NAME.log_q        [P, L, K]     root is the n-th token of the new text
    NAME.next_ids     [P, L, M, S]  of a drafter whose states are a depth and the token before: its
    NAME.next_log_q   [P, L, M, S]  best tokens after each of the M best tokens of the depth before
    NAME.next_marginal [P, L, M, S] log q of these tokens whatever stands before; may be absent
    pieces            [bytes]       JSON: token id → text

a is the prompt's length, P the rounds' possible starts. Ids are uint16 or int32, the rest float32.
Light: numpy and safetensors, never torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct, to_builtins
from safetensors import SafetensorError
from safetensors.numpy import save

from analysis.numbers import percent, plural
from core.declared import BadField, Count, Size, read
from core.errors import UserError, WrongKind
from core.files import replacing
from core.json_input import parse_json
from core.methods.method import BY_PATH, BY_PREVIOUS, BY_RUN, Value
from core.methods.registry import find_method, listed
from core.rounds.draft import Array, Candidates
from core.rounds.round import Sampling
from core.tensor_files import read_arrays

MOST_TOKENS = 1 << 21  # of a vocabulary: arrays are made of this length
FORMAT, VERSION = "draftscope-collected", 1
TABLES = ("next_ids", "next_log_q", "next_marginal")
_FLOATS, _WHOLE = ("float32",), ("uint16", "int32", "int64")
_DAMAGED = "{} is a damaged collected file: {}"


class DrafterLimits(
    Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"max_depth": "depths", "width": "kept", "min_width": "least"},  # names in the file
):
    """How much a file holds of one drafter.

    max_depth   L
    width       K, tokens listed per depth; ``complete``: the drafter has no more of them
    min_width   tokens the drafter lists per depth at any budget
    candidates  M, tokens per depth with a list after each; 0: the drafter's states are depths
    siblings    S, tokens listed after each of them
    options     the drafter's other options when it was collected
    """

    max_depth: Size
    width: Size
    min_width: Size
    complete: bool
    candidates: Count = 0
    siblings: Count = 0
    options: dict[str, Value] = {}

    def setting(self, option: str) -> Value | None:
        """An option's value when the drafter was collected; None where the file does not say."""
        sizes = {"candidates": self.candidates, "siblings": self.siblings}
        return {**sizes, **self.options}.get(option)


class Given(Struct, frozen=True, forbid_unknown_fields=True):
    """A new text that the target did not write here, but read.

    name    of the file it came from
    words   the file held words, which the target's tokenizer cut into tokens
    length  tokens of the whole text, of which the file may hold the first
    digest  of the prompt and the text in that file
    log_p   mean log p that the target gives its tokens
    off     numbers, from 0, of the new tokens that are not the target's greedy choice
    near    how many of these are nearly as probable as that choice
    """

    name: str
    words: bool
    length: Count
    digest: str
    log_p: float
    off: tuple[Count, ...] = ()
    near: Count = 0

    def sentence(self, count: int) -> str:
        """Where the first ``count`` tokens come from, and how they suit the target."""
        some = f"{count} of its {self.length} tokens" if count < self.length else f"{count} tokens"
        cut = " (cut anew from its words)" if self.words else ""
        said = f"the text is given, not written here: {self.name}, {some}{cut}"
        said += f", mean p {percent(math.exp(min(0.0, self.log_p)))}"
        if not self.off:
            return f"{said}; every token is the target's greedy choice"
        off = f"{plural(len(self.off), 'token')} ({percent(len(self.off) / count)})"
        verb = "is" if len(self.off) == 1 else "are"
        said += (
            f"; {off} {verb} not the target's greedy choice, the first is token {self.off[0] + 1}"
        )
        return said + (f", and {self.near} nearly tied with it" if self.near else "")


class CollectionHeader(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a file comes from. Builders take it for the target that they are made for.

    end      index after the last new token; ``answer``: of the first
    sampling the target's rule
    given    what is known of a text that the target did not write; None: its own
    """

    name: str
    vocabulary: Annotated[int, Meta(ge=1, le=MOST_TOKENS)]
    stops: tuple[Count, ...]
    answer: Size
    end: Count
    prompt_text: str
    sampling: Sampling
    drafters: dict[str, DrafterLimits]
    about: dict[str, Any] = {}
    given: Given | None = None

    @property
    def stop_ids(self) -> frozenset[int]:
        return frozenset(self.stops)

    @property
    def starts(self) -> int:
        """P: the last new token is never a root."""
        return self.end - 1 - self.answer

    def to_json(self) -> str:
        raw = to_builtins(self)
        if self.given is None:  # then older programs read the file, too
            del raw["given"]
        return json.dumps(raw, ensure_ascii=False)

    @staticmethod
    def from_json(text: str) -> CollectionHeader:
        """Raises UserError or BadField for anything that is not a header."""
        raw = parse_json(text, "the header")
        made: CollectionHeader = read(raw, CollectionHeader)
        listed = all(each.siblings or not each.candidates for each in made.drafters.values())
        off, near = (made.given.off, made.given.near) if made.given else ((), 0)
        ordered = list(off) == sorted(set(off)) and max(off, default=0) < made.end - made.answer
        whole = listed and ordered and near <= len(off) and made.answer < made.end - 1
        if not whole or raw["sampling"].keys() - asdict(made.sampling).keys():
            raise BadField("its sizes contradict each other, or its rule is not known")
        return made


@dataclass(frozen=True, eq=False)
class Collection:
    """An opened file. Positions are indices into ``tokens``."""

    path: Path
    header: CollectionHeader
    arrays: Mapping[str, Array]

    @staticmethod
    def load(path: Path) -> Collection:
        """Raises UserError for a damaged or unreadable file, or one of another kind."""
        metadata, arrays = read_arrays(Path(path), "a collected text")
        if metadata.get("format") != FORMAT:
            raise WrongKind(f"{path} is a safetensors file but not a collected text", Path(path))
        if metadata.get("version") != str(VERSION):
            raise UserError(
                f"{path} is a collected file of version {metadata.get('version')}; "
                f"this program reads version {VERSION}"
            )
        try:
            header = CollectionHeader.from_json(metadata["header"])
        except (UserError, BadField, KeyError):
            raise UserError(_DAMAGED.format(path, "its header cannot be read")) from None
        made = Collection(Path(path), header, arrays)
        made._check()
        return made

    @cached_property
    def tokens(self) -> Array:
        """int64 [T]"""
        return self.arrays["tokens"].astype(np.int64)

    @property
    def answer(self) -> int:
        return self.header.answer

    @property
    def end(self) -> int:
        return self.header.end

    @property
    def given(self) -> str:
        """A sentence on a text that the target did not write; "" for its own."""
        given = self.header.given
        return "" if given is None else given.sentence(self.end - self.answer)

    @property
    def positions(self) -> range:
        """Where a round's root can stand."""
        return range(self.answer, self.end - 1)

    @property
    def drafters(self) -> tuple[str, ...]:
        return tuple(self.header.drafters)

    @property
    def methods(self) -> tuple[str, ...]:
        """The listed methods whose drafter is here, each with every checkpoint of it."""
        kinds = [name.partition("@") for name in self.header.drafters]
        return tuple(
            f"{name}{at}{weights}"
            for name, method in listed().items()
            for kind, at, weights in kinds
            if method.drafter == kind
        )

    def limits(self, method: str) -> DrafterLimits:
        """Return how much the file holds of the method's drafter.

        Raises UserError when it holds nothing of it.
        """
        check_listable(method)
        key = drafter_key(method)
        if key not in self.header.drafters:
            raise UserError(
                f"{self.path.name} holds nothing of {method}'s drafter, "
                f"only of {', '.join(self.drafters)}"
            )
        return self.header.drafters[key]

    def lists(self, drafter: str, position: int) -> Candidates:
        """The drafter's K best tokens at each depth for a root at ``position``, [L, K].

        Raises UserError for a position outside the new text or impossible numbers.
        """
        if position not in self.positions:
            first, last = self.positions[0], self.positions[-1]
            raise UserError(f"a round can start at {first} to {last}, not at {position}")
        at = position - self.answer
        return Candidates(self._read(f"{drafter}.ids", at), self._read(f"{drafter}.log_q", at))

    def tables(self, drafter: str, position: int) -> dict[str, Array]:
        """The lists after each of a depth's best tokens, [L, M, S]: ids, log_q and, if the file
        holds it, marginal. Empty for a drafter whose states are depths. Raises as ``lists``."""
        if not self.header.drafters[drafter].candidates:
            return {}
        at = position - self.answer
        names = {table: f"{drafter}.{table}" for table in TABLES}
        return {
            table.removeprefix("next_"): self._read(name, at)
            for table, name in names.items()
            if name in self.arrays
        }

    def _read(self, name: str, at: int) -> Array:
        """One position's numbers, checked: a search indexes arrays by them."""
        found = self.arrays[name][at]
        if found.dtype.kind == "f":
            if np.isnan(found).any():
                raise UserError(_DAMAGED.format(self.path, f"{name} holds no number"))
            return np.ascontiguousarray(found)
        if found.size and (found.min() < 0 or found.max() >= self.header.vocabulary):
            raise UserError(_DAMAGED.format(self.path, f"{name} leaves the vocabulary"))
        return found.astype(np.int64)

    @cached_property
    def pieces(self) -> Mapping[int, str]:
        """Token id → text, for the tokens that the file mentions. Hostile: never markup."""
        try:
            raw = parse_json(self.arrays["pieces"].tobytes(), "pieces")
            return {int(k): str(v) for k, v in raw.items()}
        except (UserError, ValueError, AttributeError):
            raise UserError(_DAMAGED.format(self.path, "its token texts")) from None

    def piece(self, token: int) -> str:
        return self.pieces.get(token, f"⟨{token}⟩")

    def _check(self) -> None:
        """Every array is there and has the size the header says. Contents are checked when read."""
        h, wanted = self.header, {}
        for name, limits in h.drafters.items():
            wanted |= drafter_shapes(name, h.starts, limits)
        for name, shape in wanted.items():
            self._check_one(name, shape, _FLOATS if "log_q" in name else _WHOLE)
        for name in self.arrays:
            if name.endswith(".next_marginal"):
                self._check_one(name, wanted.get(name.replace("marginal", "ids"), ()), _FLOATS)
        tokens = self.arrays.get("tokens")
        if tokens is None or tokens.ndim != 1 or len(tokens) < h.end:
            raise UserError(_DAMAGED.format(self.path, "its text is missing"))
        self._check_one("tokens", tokens.shape, _WHOLE)
        self._check_one("pieces", self.arrays.get("pieces", tokens).shape[:1], ("uint8",))

    def _check_one(self, name: str, shape: tuple[int, ...], kinds: tuple[str, ...]) -> None:
        found = self.arrays.get(name)
        if found is None or found.shape != shape or found.dtype.name not in kinds:
            raise UserError(_DAMAGED.format(self.path, f"the array {name} is not as it should be"))


def drafter_key(method: str) -> str:
    """The name a method's drafter has in a file: as listed, with "@checkpoint" if the method names
    one, or its own file's name."""
    found = find_method(method)
    if found.drafter is None:
        raise UserError("plain decoding drafts nothing: there is nothing to collect or simulate")
    if not isinstance(found.drafter, str):
        return Path(method).stem
    return f"{found.drafter}@{found.weights}" if found.weights else found.drafter


def check_listable(method: str) -> None:
    """Raises UserError for a method whose drafter's states a file cannot hold."""
    info = find_method(method).drafter_info
    if info is not None and info.states in _UNLISTABLE:
        raise UserError(not_listable(method, info.states))
    if info is not None and info.states == BY_PREVIOUS and not info.recorded:
        raise UserError(f"the drafter of {method} does not say how a collected file answers for it")


def check_asked_anywhere(method: str) -> None:
    """Raises UserError for a method whose drafter cannot be asked at any place of any text."""
    info = find_method(method).drafter_info
    if info is not None and info.states == BY_RUN:
        raise UserError(not_listable(method, BY_RUN))


def not_listable(name: str, states: str = BY_PATH) -> str:
    """Why a drafter can be neither collected nor simulated, in one sentence."""
    return f"{name} cannot be collected or simulated{_UNLISTABLE[states]}"


_UNLISTABLE = {
    BY_PATH: ": its drafter depends on the whole path before a token, and there are too many paths "
    "to list (calibrate works)",
    BY_RUN: " or calibrated: its drafter learns from the rounds of its own run",
}


def drafter_shapes(name: str, starts: int, limits: DrafterLimits) -> dict[str, tuple[int, ...]]:
    """The arrays a drafter must have in a file."""
    plain = (starts, limits.max_depth, limits.width)
    found = {f"{name}.ids": plain, f"{name}.log_q": plain}
    if limits.candidates:
        tables = (starts, limits.max_depth, limits.candidates, limits.siblings)
        found |= {f"{name}.next_ids": tables, f"{name}.next_log_q": tables}
    return found


def write(path: Path, header: CollectionHeader, arrays: Mapping[str, Array]) -> None:
    """Write a file whole or not at all. Raises UserError when it cannot be written."""
    metadata = {"format": FORMAT, "version": str(VERSION), "header": header.to_json()}
    whole = {n: np.ascontiguousarray(a) for n, a in arrays.items()}
    try:
        with replacing(path) as unfinished:
            unfinished.write_bytes(save(whole, metadata))
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} cannot be written: {error}") from None
