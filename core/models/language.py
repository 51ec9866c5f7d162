"""Loading targets with their tokenizers: text in, ids out. No remote code is ever run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from core.chat import chat_of
from core.errors import UserError, first_line
from core.memory import release
from core.models import embedded, llama, presets
from core.models.chat_template import render_chat
from core.models.fast_layers import can_pack, use_fast_layers
from core.models.gguf import read_config
from core.models.hub import Source, loading_model
from core.models.layer_kinds import check_branches
from core.models.presets import Value
from core.models.readout import Readout
from core.models.stored_embedding import store_embedding
from core.models.target import device_map, input_device, stop_ids
from core.models.tokens import FolderTokenizer
from core.models.tree_reading import check_tree_reading, let_trees_branch
from core.progress import Progress, silent

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

MARKER = "\ue000"  # stands for a user's words in a template
SPLIT = "split"  # the device name that means all GPUs together


def _bytes_by_character() -> dict[str, int]:
    """Byte-level BPE vocabularies spell a byte as the Latin-1 character of its number where that is
    printable, and the others, in order, as the characters from 256 on."""
    shown, rest = {*range(33, 127), *range(161, 173), *range(174, 256)}, count(256)
    return {chr(byte if byte in shown else next(rest)): byte for byte in range(256)}


_BYTE_OF = _bytes_by_character()


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """A model's tokens without its weights: the tokenizer and V, the number of token ids."""

    tokenizer: PreTrainedTokenizerBase
    size: int

    @property
    def identity(self) -> str:
        """SHA-256 over the vocabulary: traces with the same hash have the same token ids."""
        vocabulary = sorted(self.tokenizer.get_vocab().items(), key=lambda kv: kv[1])
        return hashlib.sha256(json.dumps(vocabulary).encode()).hexdigest()[:16]

    @cached_property
    def _anchor(self) -> list[int]:
        """An ordinary token. After it, a token's leading blank is kept: decoders like
        SentencePiece's remove the one at the start of a text."""
        return list(self.tokenizer("a", add_special_tokens=False).input_ids[-1:])

    def text_behind(self, token: int) -> str:
        """One token's text as it stands behind another; bytes that are not a character by
        themselves are U+FFFD."""
        before = str(self.tokenizer.decode(self._anchor))
        text = str(self.tokenizer.decode([*self._anchor, token]))
        if text.startswith(before):
            return text.removeprefix(before)
        return str(self.tokenizer.decode([token]))


@dataclass(frozen=True, eq=False)
class Language:
    """A loaded target with its tokenizer.

    Model and tokenizer are transformers', or a ``Llama`` and a ``FolderTokenizer``, which answer to
    the same names.

    folder    the folder it was loaded from; None: a hub repository
    template  variables of the chat template, such as ``enable_thinking``
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    folder: Path | None
    template: Mapping[str, Value] = field(default_factory=dict, kw_only=True)
    _pieces: dict[int, str] = field(default_factory=dict, init=False)

    @property
    def device(self) -> torch.device:
        return input_device(self.model)

    @property
    def embedding(self) -> nn.Module:
        """The target's input embedding: ids [...] → [..., h]."""
        return self.model.get_input_embeddings()

    @property
    def head(self) -> nn.Module:
        """The target's head: rows [..., h] → logits [..., V], on the device the rows come from."""
        head = self.model.get_output_embeddings()
        assert head is not None, "a causal LM has a head"
        return ReturnToInputDevice(head) if device_map(self.model) else head

    @cached_property
    def readout(self) -> Readout:
        """The scale and cap that the target puts on the logits of its head. Raises UserError
        where they are not known."""
        return Readout.of(self.model.config)

    def logits(self, rows: Tensor) -> Tensor:
        """The target's logits [..., V] of its normed rows [..., h]."""
        return self.readout(self.head(rows))

    @property
    def vocabulary(self) -> int:
        """V, the number of token ids."""
        return self.model.config.get_text_config().vocab_size

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end a text, from the model's generation config."""
        return stop_ids(self.model)

    def encode_chat(self, prompt: str) -> list[int]:
        """Ids of a prompt in the model's chat template, as the function of this name."""
        return encode_chat(self.tokenizer, prompt, **self.template)

    def encode(self, text: str) -> list[int]:
        """Ids of words that follow others: marks of the chat template in them are words, too."""
        check_text(text)
        with _panics_told():
            return self.tokenizer(
                text, add_special_tokens=False, split_special_tokens=True
            ).input_ids

    def text(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def piece(self, token: int) -> str:
        """One token's text; bytes that are not a character by themselves show as ``‹e2 82›``."""
        if token not in self._pieces:
            self._pieces[token] = self._piece(token)
        return self._pieces[token]

    def _piece(self, token: int) -> str:
        text = self.tokens.text_behind(token)
        if "\ufffd" not in text:
            return text
        raw = self.tokenizer.convert_ids_to_tokens(token)
        codes = [_BYTE_OF.get(c) for c in raw] if isinstance(raw, str) else []
        if isinstance(raw, str) and (byte := re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", raw)):
            codes = [int(byte[1], 16)]  # as SentencePiece spells a byte
        if not codes or None in codes:
            return text
        return "‹" + " ".join(f"{code:02x}" for code in codes) + "›"

    @cached_property
    def tokens(self) -> Vocabulary:
        return Vocabulary(self.tokenizer, self.vocabulary)

    @cached_property
    def tokenizer_hash(self) -> str:
        return self.tokens.identity


class ReturnToInputDevice(nn.Module):
    """A module that may be on another device; its output is moved to the input's device."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).to(x.device)


def encode_chat(tokenizer: PreTrainedTokenizerBase, prompt: str, **options: Any) -> list[int]:
    """Ids of a prompt in the chat template: of the chat that it is, or of one turn of the user.
    Without a template they are of the bare words.

    ``options`` are the template's own variables (``enable_thinking=False``). Special tokens in a
    message stay text: such messages are encoded apart from what the template puts around them.

    Raises UserError for half a surrogate pair, for a template that cannot be used, and for a chat
    without a template.
    """
    check_text(prompt)
    chat = chat_of(prompt)
    with _panics_told():
        if not tokenizer.chat_template:
            if chat.contents != [prompt]:
                raise UserError("this target has no chat template, so it takes no chat")
            return tokenizer(prompt, split_special_tokens=True).input_ids
        special = [str(t) for t in tokenizer.added_tokens_decoder.values() if t.special]
        if not any(token in words for words in chat.contents for token in special):
            text = render_chat(tokenizer, chat, **options)
            return tokenizer(text, add_special_tokens=False).input_ids
        marks = [chr(ord(MARKER) + at) if words else "" for at, words in enumerate(chat.contents)]
        text = render_chat(tokenizer, chat.saying(marks), **options)
        return encode_marked(tokenizer, text, dict(zip(marks, chat.contents, strict=True)))


@contextmanager
def _panics_told() -> Iterator[None]:
    """Turn a panic of the tokenizers library, which is not an Exception, into a UserError. A
    tokenizer's own regular expression may need more steps for a text than are allowed."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise UserError(f"the tokenizer cannot read this text: {str(error)[:200]}") from None


def check_text(text: str) -> None:
    """Check that a text is one: Python's strings may hold half of a character.

    Raises UserError.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"{ord(text[error.start]):X}"
        raise UserError(
            f"the text holds half of a character (U+{half}, at {error.start}), which no tokenizer "
            "can read"
        ) from None


def encode_marked(
    tokenizer: PreTrainedTokenizerBase, text: str, words: Mapping[str, str]
) -> list[int]:
    """Ids of a text in which marks, a character each, stand for ``words``. These are encoded by
    themselves, and special tokens in them stay text."""
    ids = list[int]()
    for part in re.split(f"([{''.join(words)}])", text):
        typed = part in words
        part = words.get(part, part)
        ids += tokenizer(part, add_special_tokens=False, split_special_tokens=typed).input_ids
    return ids


def pick_device(wanted: str = "auto") -> torch.device:
    """The torch device of this name. Raises UserError for one that this machine does not have."""
    if wanted in ("auto", SPLIT):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.ones(1, device=device).item()  # "meta" has a name but holds no numbers
    except Exception as error:  # torch raises many types here
        cards = [f"cuda:{n}" for n in range(torch.cuda.device_count())]
        usable = ["auto", "cpu", *(["cuda", *cards] if cards else [])]
        why = f"{first_line(error)}; " if wanted in usable else ""
        raise UserError(
            f"the device {wanted!r} cannot be used here: {why}choose one of {', '.join(usable)}"
        ) from None
    return device


def compute_dtype(device: torch.device) -> torch.dtype:
    """The CPU computes in float32, a GPU in bfloat16."""
    return torch.float32 if device.type == "cpu" else torch.bfloat16


def target_config(name: str) -> PreTrainedConfig | None:
    """The config of the target of this name; None: the embedded one is not made yet.

    No weights are fetched. Raises UserError when it cannot be read.
    """
    if name == embedded.NAME and not embedded.is_ready():
        return None
    source = _source(name, embedded.embedded_path)
    with loading_model(name):
        if name == embedded.NAME:
            raw = llama.read_config(embedded.embedded_path())
            return cast("PreTrainedConfig", llama.LlamaConfig(**raw))
        if source.gguf is not None:
            config = read_config(source.gguf)
        else:
            from core.models.hugging_face import load_config

            config = load_config(source)
    check_branches(name, config)
    return config


def last_layer(model: PreTrainedModel) -> int:
    """The number of the layer, from 0, whose output is the last hidden state."""
    return model.config.get_text_config().num_hidden_layers - 1


def final_norm(language: Language) -> nn.Module | None:
    """The target's norm before its head, where it goes by the usual name."""
    return getattr(language.model.get_decoder(), "norm", None)


def load_vocabulary(name: str, report: Progress = silent) -> Vocabulary:
    """The tokens of the target of this name. Raises UserError when they cannot be read."""
    from core.models.hugging_face import load_config, load_tokenizer

    source = target_source(name, report)
    with loading_model(name):
        size = load_config(source).get_text_config().vocab_size
        return Vocabulary(load_tokenizer(source), size)


def _source(name: str, embedded_folder: Callable[[], Path]) -> Source:
    """Where the target of this name is. Raises UserError for a diffusion model."""
    if name == embedded.NAME:
        return Source(str(embedded_folder()))
    preset = presets.preset_of(name)
    if preset.diffusion:
        raise UserError(f"{name!r} is a diffusion model: `denoise` decodes it")
    return preset.target


def target_source(name: str, report: Progress = silent) -> Source:
    """Where the target of this name is. The embedded one and that of a GGUF file are made if need
    be. Raises UserError."""
    source = _source(name, lambda: embedded.prepare(report))
    made = source.made(report)
    return source if made is None else Source(str(made))


def load_language(
    name: str = embedded.NAME,
    device: str = "auto",
    report: Progress = silent,
    fast: bool = True,
    template: Mapping[str, Value] | None = None,
) -> Language:
    """Load a target: the embedded one or a preset by name, any other causal LM by path or hub id.

    The CPU computes in float32, a GPU in bfloat16.

    device    "auto", a torch device, or "split": fill the GPUs one after the other, then the CPU's
              memory, as accelerate plans it
    fast      use faster layers (``fast_layers``); off for training, which needs plain weights
    template  variables of the chat template, beside the preset's

    Raises UserError when loading fails.
    """
    where = pick_device(device)
    source = target_source(name, report)
    if name == embedded.NAME and fast and can_pack(compute_dtype(where), where):
        report(None, "loading weights")
        return _embedded(template)
    dtype = compute_dtype(where)
    with loading_model(name):
        from core.models.hugging_face import load_config, load_model, load_tokenizer

        config = load_config(source)
        check_branches(name, config)
        tokenizer = load_tokenizer(source)
        model = load_model(source, config, dtype, device == SPLIT, report)
        let_trees_branch(model, config)
    if not device_map(model):
        model = model.to(where)  # type: ignore[arg-type]
        if fast:
            use_fast_layers(model, dtype, where)
            if can_pack(dtype, where) and (folder := source.here()) is not None:
                store_embedding(model, folder)
            release()  # the weights as they were
    model.eval().requires_grad_(False)
    check_tree_reading(model)
    return with_preset(name, model, tokenizer, source.folder, template)


def with_preset(
    name: str, model: Any, tokenizer: Any, folder: Path | None, template: Mapping[str, Value] | None
) -> Language:
    """A loaded target with its preset's chat template and variables, unless it has its own."""
    preset = presets.preset_of(name)
    if preset.chat_template and not tokenizer.chat_template:
        tokenizer.chat_template = preset.chat_template
    variables = {**preset.template, **(template or {})}
    return Language(name, model, tokenizer, folder, template=variables)


def _embedded(template: Mapping[str, Value] | None) -> Language:
    """The embedded target on a CPU, without transformers."""
    folder = embedded.embedded_path()
    with loading_model(embedded.NAME):
        model: Any = llama.load(folder)
        tokenizer: Any = FolderTokenizer(folder)
    release()  # the weights as they were
    return with_preset(embedded.NAME, model, tokenizer, folder, template)
