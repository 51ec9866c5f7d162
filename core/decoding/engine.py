"""A loaded engine and its runs: what the command line and the studio both start rounds with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from core import CREATOR
from core.decoding.decode import Decoder, Observer, decode
from core.decoding.request import RunRequest
from core.drafting import builders
from core.drafting.session import Builder, Drafter
from core.errors import UserError
from core.files import sha256
from core.memory import Recent
from core.methods import loading
from core.methods.fetch import ngram_store
from core.methods.method import DrafterInfo, drafter_source, lazy, made_options
from core.methods.registry import Chosen, check_preset, choose, find_method, split
from core.models import embedded, presets
from core.models.ends import load_ends
from core.models.hub import Source
from core.models.language import Language, load_language, target_config
from core.models.presets import Value
from core.models.target import Place, Target
from core.models.tree_mask import ancestor_mask
from core.progress import Progress, silent
from core.rounds.round import Round, new_tokens
from core.traces.schema import Header
from core.verification.rules import TargetTokens

LOADED = 6  # drafters and builders kept in memory: each set of options makes new ones


class Run:
    """One started run: its header, and its rounds with the text of every token they mention.

    rounds  the same without texts: nothing but decoding happens between two of them
    tokens  the new text's tokens, of the rounds so far
    """

    def __init__(
        self,
        header: Header,
        rounds: Iterator[Round],
        language: Language,
        tokens: Callable[[Sequence[Round]], list[int]] = new_tokens,
    ):
        self.header, self.rounds, self.tokens = header, rounds, tokens
        self._language = language

    def __iter__(self) -> Iterator[Round]:
        return map(self.with_texts, self.rounds)

    def with_texts(self, record: Round) -> Round:
        """The round with the text of every token it mentions, as a trace or a view needs it."""
        return record.with_texts({t: self._language.piece(t) for t in record.mentioned})

    def text(self, tokens: list[int]) -> str:
        return self._language.text(tokens)


class Engine:
    """A target with its drafters, loaded once. One run at a time: callers queue.

    model     a preset's name (``core.models.presets``), a folder, a GGUF file or a hub id
    drafter   a checkpoint, named so, in place of the preset's or the shipped one
    template  variables of the chat template, beside the preset's
    ends      load the target's embedding, final norm and head alone, for hidden states that were
              kept (``core.decoding.dumps``): it then runs no text
    """

    def __init__(
        self,
        model: str = embedded.NAME,
        device: str = "auto",
        drafter: Path | str | None = None,
        template: Mapping[str, Value] | None = None,
        ends: bool = False,
    ):
        self.model, self.device, self.ends = model, device, ends
        self.preset = presets.preset_of(model)
        check_preset(self.preset)
        self.template = {**self.preset.template, **(template or {})}
        self._drafter = Source.of(drafter) if drafter is not None else None
        self._folders: dict[DrafterInfo, Path] = {}  # of drafters, once fetched
        self._digests: dict[DrafterInfo, str] = {}  # of their weights
        self._lock = threading.Lock()
        self._language: Language | None = None
        self._drafters: Recent[Drafter] = Recent(LOADED)  # by drafter and options
        self._builders: Recent[Builder] = Recent(LOADED)  # by method and options
        self._targets: dict[tuple[int, ...], Target] = {}
        self._place = Place()  # of the one text that all targets read

    def prepare(self, report: Progress = silent, methods: Sequence[str] = ()) -> Language:
        """Load the target if it is not loaded yet; safe to call from several threads.

        The drafters of ``methods`` are compared with the target before anything heavy is loaded,
        and are brought here after it. Raises UserError as ``check``.
        """
        self.check(*methods)
        with self._lock:
            if self._language is None:
                ancestor_mask(builders.warm_up())  # both are compiled before the first round
                load = load_ends if self.ends else load_language
                self._language = load(self.model, self.device, report, template=self.template)
                report(1.0, "ready")
        self.fetch(*methods, report=report)
        return self._language

    def check(self, *methods: str) -> None:
        """Compare the methods' drafters with the target by their small files: no weight is read.

        Raises UserError for a checkpoint that is missing, holds no drafter, is another target's, or
        was trained with another chat template.
        """
        config = None
        for name in methods:
            info = find_method(name).drafter_info
            source = self.checkpoint(info) if info is not None else None
            if info is not None and info.checkpoint is not None and source is None:
                raise loading.none_ships(info.name, self.model)
            if info is not None and source is not None:
                presets.check_template(source, self.template)
                config = config or target_config(self.model)
                if config is not None:
                    loading.check_checkpoint(info.name, source, self.model, config)

    def fetch(self, *methods: str, report: Progress = silent) -> None:
        """Bring the methods' drafters here. Raises UserError."""
        for name in methods:
            if (info := find_method(name).drafter_info) is not None:
                self._folder(info, report)

    def checkpoint(self, drafter: DrafterInfo) -> Source | None:
        """Where a drafter's weights come from: as its method's name or the caller asks, as the
        preset says, as it ships, or the target's own files."""
        if drafter.checkpoint is None:
            return None
        asked = Source.of(drafter.weights) if drafter.weights else self._drafter
        named = asked or self.preset.drafters.get(drafter.name)
        if named is not None:
            return drafter_source(drafter, named)
        if (folder := loading.shipped(drafter.name, self.model)) is not None:
            return Source(str(folder))
        return self.preset.target if loading.lies_inside(drafter, self.preset.target) else None

    def method(self, name: str, options: Mapping[str, Value] | None = None) -> Decoder:
        return self.load(choose(name, options))

    def load(self, chosen: Chosen, report: Progress = silent) -> Decoder:
        """The method with its drafter; ``report`` hears of weights that are fetched."""
        language, drafter = self.prepare(), self.load_drafter(chosen, report)
        if drafter is None:
            return Decoder(chosen.name)
        key = (chosen.method, tuple(chosen.options.items()))
        with self._lock:
            builder = self._builders.get(key, lambda: self._builder(chosen, language))
        rule = chosen.method.rule_for(chosen.options)
        return Decoder(chosen.name, drafter, builder, lazy(rule) if rule else TargetTokens)

    def load_drafter(self, chosen: Chosen, report: Progress = silent) -> Drafter | None:
        """The method's drafter, loaded; None for plain decoding. One that serves several methods is
        loaded once."""
        language, info = self.prepare(), chosen.method.drafter_info
        if info is None:
            return None
        own = chosen.drafter_options
        with self._lock:
            made = made_options(info.options, own)
            return self._drafters.get(
                (info, tuple(own.items())),
                lambda: loading.load_drafter(info, language, self._folder(info, report), made),
            )

    def _builder(self, chosen: Chosen, language: Language) -> Builder:
        values, info = chosen.options, chosen.method.builder_info
        files = info.files if info is not None else ()
        wanted = "ngram" in files and not values["ngram"] and values["ngram_weight"]
        if wanted and self.preset.ngram:
            values = {**values, "ngram": str(ngram_store(self.model, self.preset.ngram))}
        return chosen.method.make_builder(language, values)

    def target(self, method: Decoder) -> Target:
        """The target keeping the features this method's drafter needs."""
        if self.ends:
            raise UserError("only the target's ends are loaded, and they run no text")
        layers = method.drafter.layers if method.drafter else ()
        with self._lock:
            if layers not in self._targets:
                assert self._language is not None
                self._targets[layers] = Target(self._language.model, layers, place=self._place)
            return self._targets[layers]

    def start(
        self, request: RunRequest, observe: Observer | None = None, report: Progress = silent
    ) -> Run:
        """Check and begin a run; nothing is computed until it is iterated. ``observe`` and
        ``report`` as for ``decode``.

        Raises UserError for a bad request before any round.
        """
        run, language = request.resolved, self.prepare()
        chosen, settings = run.chosen, run.settings
        method = self.load(chosen, report)
        prompt = language.encode_chat(request.prompt)
        rounds = decode(self.target(method), method, prompt, settings, observe, report)
        header = Header(
            method=split(chosen.name)[0],
            settings=asdict(settings)
            | ({"options": dict(chosen.options)} if chosen.options else {}),
            model=model_identity(language),
            drafter=self.identity(chosen, method.drafter),
            prompt_text=request.prompt,
            prompt_ids=tuple(prompt),
            seed=request.seed,
            **environment(language),
        )
        return Run(header, rounds, language)

    def identity(self, chosen: Chosen, drafter: Drafter | None) -> dict[str, Any]:
        """Return a header's fields on a method's drafter: kind, depths, feature layers, hash of its
        weights and the checkpoint by the name that was asked for; nothing for plain decoding."""
        info = chosen.method.drafter_info
        if drafter is None or info is None:
            return {}
        found = {
            "kind": info.name,
            "depths": drafter.max_depth,
            "layers": list(drafter.layers),
        }
        if chosen.name.endswith(".py"):
            return found | {"sha256": own_digest(chosen.name), "chain": chosen.method.is_chain}
        folder = self._folder(info)
        if folder is None:
            return found
        if info not in self._digests:
            self._digests[info] = loading.weights_digest(info.name, folder)
        found |= {"sha256": self._digests[info]}
        asked = info.weights or (str(self._drafter) if self._drafter else "")
        return found | ({"checkpoint": asked} if asked else {})

    def _folder(self, drafter: DrafterInfo, report: Progress = silent) -> Path | None:
        """The folder of a drafter's weights, fetched if it is not here."""
        source = self.checkpoint(drafter)
        if source is not None and drafter not in self._folders:
            presets.check_template(source, self.template)
            self._folders[drafter] = source.full_folder(report)
        return self._folders.get(drafter)


def own_digest(path: str) -> str:
    """A hash of a method's own file alone, without the files that it reads."""
    return sha256(Path(path).expanduser())[:16]


def environment(language: Language) -> dict[str, Any]:
    """Return the fields of a header on the place and time of a run: device, libraries, creator."""
    return {
        "tokenizer_hash": language.tokenizer_hash,
        "dtype": str(language.model.dtype).removeprefix("torch."),
        "device": str(language.device),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "creator": CREATOR,
        "libraries": {n: metadata.version(n) for n in ("torch", "transformers", "numpy")},
    }


def other_target(header: Header, language: Language) -> str:
    """Why a run's target is not this model, or not known to be, in words; "": it is. A revision or
    tokenizer that only one of the two tells is not compared."""
    mine = model_identity(language)
    name, revision = (str(header.model.get(key) or "") for key in ("name", "revision"))
    if not name:
        return "the run does not tell which target wrote it"
    if name != mine["name"]:
        return f"the run's target is {name[:80]}, and here {mine['name']} is loaded"
    if revision and revision != mine.get("revision", revision):
        return f"the run was written by another version of {mine['name']}"
    if header.tokenizer_hash and header.tokenizer_hash != language.tokenizer_hash:
        return f"the run's {mine['name']} had another tokenizer"
    return ""


def model_identity(language: Language) -> dict[str, Any]:
    """Name, template, and the revision: a hub commit, or the wheel's hash."""
    found: dict[str, Any] = {"name": language.name}
    if language.template:
        found["template"] = dict(language.template)
    if commit := getattr(language.model.config, "_commit_hash", None):
        found["revision"] = commit
    if language.name == embedded.NAME:
        found["revision"] = f"{embedded.PACKAGE} {embedded.VERSION} {embedded.WHEEL_SHA256[:16]}"
    return found
