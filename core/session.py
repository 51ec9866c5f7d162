"""A loaded engine and its runs: what the command line and the studio both start rounds with."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from core import VERSION, builders, embedded, presets
from core.decode import Builder, Drafter, Method, Observer, Settings, decode
from core.drafters import load
from core.drafters.load import shipped
from core.fetch import ngram_store
from core.hub import Source
from core.methods import Recipe, Value, load_builder, load_drafter, recipe, settle
from core.models import Language, load_language, target_config
from core.target import Target
from core.trace import Header
from core.types import TEXTED, Round, Sampling


@dataclass(frozen=True)
class RunRequest:
    """One run, as a person asks for it. ``budget`` None is the method's default.

    options  (name, value) pairs of the method's own options (``core.methods.settle``)
    """

    prompt: str
    method: str = "ddtree"
    budget: int | None = None
    max_new_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    timed: bool = True
    options: tuple[tuple[str, Value], ...] = ()

    def settings(self) -> Settings:
        budget = recipe(self.method).budget if self.budget is None else self.budget
        sampling = Sampling(self.temperature, self.top_k, self.top_p, self.seed)
        settings = Settings(budget, self.max_new_tokens, sampling, self.timed)
        settings.check()
        settle(self.method, dict(self.options))
        return settings


class Run:
    """One started run: its header, and its rounds with every mentioned token's text."""

    def __init__(self, header: Header, rounds: Iterator[Round], language: Language):
        self.header, self._rounds, self._language = header, rounds, language

    def __iter__(self) -> Iterator[Round]:
        return map(self.texted, self._rounds)

    def bare(self) -> Iterator[Round]:
        """The rounds without token texts: nothing but decoding happens between two of them."""
        return self._rounds

    def texted(self, record: Round) -> Round:
        """The round with the text of every token it mentions, as a trace or a view needs it."""
        return record.with_texts(_texts(record, self._language))

    def text(self, tokens: list[int]) -> str:
        return self._language.text(tokens)


class Engine:
    """A target with its drafters, loaded once. One run at a time: callers queue.

    model     a preset's name (``core.presets``), a folder or a hub id
    drafter   a checkpoint, by folder or hub id, in place of the preset's or the shipped one
    template  variables of the chat template, beside the preset's
    """

    def __init__(
        self,
        model: str = embedded.NAME,
        device: str = "auto",
        drafter: Path | str | None = None,
        template: Mapping[str, Value] | None = None,
    ):
        self.model, self.device = model, device
        self.preset = presets.find(model)
        self.template = {**self.preset.template, **(template or {})}
        self._drafter = Source.of(drafter) if drafter is not None else None
        self._folders: dict[str, Path] = {}  # of drafters by kind, once fetched
        self._digests: dict[str, str] = {}  # of their weights
        self._lock = threading.Lock()
        self._language: Language | None = None
        self._drafters: dict[Any, Drafter] = {}  # by kind and options
        self._builders: dict[Any, Builder] = {}  # by recipe and options
        self._targets: dict[tuple[int, ...], Target] = {}

    def prepare(self, report: embedded.Report = lambda _: None) -> Language:
        """Load the target if it is not loaded yet; safe to call from several threads."""
        with self._lock:
            if self._language is None:
                builders.warm_up()
                self._language = load_language(
                    self.model, self.device, report, template=self.template
                )
                report(embedded.Progress("ready", 1.0))
            return self._language

    def check(self, *methods: str) -> None:
        """Compare the methods' drafters with the target by their small files: no weight is read.

        Raises UserError for one that is none, is another target's, or was trained with another
        chat template.
        """
        config = None
        for name in methods:
            kind = recipe(name).drafter
            source = self.checkpoint(kind) if isinstance(kind, str) else None
            if isinstance(kind, str) and source is not None:
                presets.trained_with(source, self.template)
                config = config or target_config(self.model)
                if config is not None:
                    load.check(kind, source, self.model, config)

    def checkpoint(self, kind: str) -> Source | None:
        """Where this kind of drafter comes from: as asked, as the preset says, or as it ships."""
        named = self._drafter or self.preset.drafters.get(kind)
        folder = shipped(kind, self.model) if named is None else None
        return Source(str(folder)) if folder is not None else named

    def method(self, name: str, options: Mapping[str, Value] | None = None) -> Method:
        """The method with its drafter; a drafter that serves several methods is loaded once."""
        chosen, language = recipe(name), self.prepare()
        settled = settle(name, options or {})
        if chosen.drafter is None:
            return Method(name)
        if settled.get("ngram") == "" and settled["ngram_weight"] and self.preset.ngram:
            settled["ngram"] = str(ngram_store(self.model, self.preset.ngram))
        own = tuple((k, settled[k]) for k in chosen.drafter_options)
        with self._lock:
            drafter = _recent(
                self._drafters,
                (chosen.drafter, own),
                lambda: load_drafter(chosen, language, settled, self._folder(chosen)),
            )
            builder = _recent(
                self._builders,
                (chosen, tuple(settled.items())),
                lambda: load_builder(chosen, language, settled),
            )
            return Method(name, drafter, builder)

    def target(self, method: Method) -> Target:
        """The target keeping the features this method's drafter needs."""
        layers = method.drafter.layers if method.drafter else ()
        with self._lock:
            if layers not in self._targets:
                assert self._language is not None
                self._targets[layers] = Target(self._language.model, layers)
            return self._targets[layers]

    def start(self, request: RunRequest, observe: Observer | None = None) -> Run:
        """Check and begin a run; nothing is computed until it is iterated.

        Raises UserError for a bad request before any round.
        """
        settings = request.settings()
        language = self.prepare()
        options = settle(request.method, dict(request.options))
        method = self.method(request.method, options)
        prompt = language.encode_chat(request.prompt)
        rounds = decode(self.target(method), method, prompt, settings, observe)
        header = Header(
            method=request.method,
            settings=asdict(settings) | ({"options": options} if options else {}),
            model=_model_identity(language),
            drafter=self.identity(request.method, method),
            prompt_text=request.prompt,
            prompt_ids=tuple(prompt),
            seed=request.seed,
            **circumstances(language),
        )
        return Run(header, rounds, language)

    def identity(self, name: str, method: Method) -> dict[str, Any]:
        """What a header says of a method's drafter: kind, depths, feature layers and a hash of its
        weights; nothing for plain decoding."""
        drafter, chosen = method.drafter, recipe(name)
        if drafter is None:
            return {}
        found: dict[str, Any] = {"depths": drafter.depths, "layers": list(drafter.layers)}
        folder, kind = self._folder(chosen), chosen.drafter
        if not isinstance(kind, str):
            own = {"sha256": own_digest(name)} if name.endswith(".py") else {}
            return {"kind": getattr(kind, "__name__", "own"), **found, **own}
        if folder is None:
            return {"kind": kind} | found
        if kind not in self._digests:
            self._digests[kind] = load.digest(kind, folder)
        return {"kind": kind, **found, "sha256": self._digests[kind]}

    def _folder(self, chosen: Recipe) -> Path | None:
        """The folder of the method's drafter, fetched if it is not here."""
        if not isinstance(chosen.drafter, str):
            return None
        source = self.checkpoint(chosen.drafter)
        if source is not None and chosen.drafter not in self._folders:
            presets.trained_with(source, self.template)
            self._folders[chosen.drafter] = source.whole()
        return self._folders.get(chosen.drafter)


def own_digest(path: str) -> str:
    """A hash of a method's own file; what it reads beside that it alone knows."""
    return hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest()[:16]


def circumstances(language: Language) -> dict[str, Any]:
    """What a header says of where and when a run was made."""
    return {
        "tokenizer_hash": language.tokenizer_hash,
        "dtype": str(language.model.dtype).removeprefix("torch."),
        "device": str(language.device),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "creator": {"name": "draftscope", "version": VERSION},
        "libraries": {n: metadata.version(n) for n in ("torch", "transformers", "numpy")},
    }


T = TypeVar("T")
KEPT = 6  # drafters and builders in memory: options make new ones


def _recent(made: dict[Any, T], key: Any, make: Callable[[], T]) -> T:
    """What was made for ``key``, or is made now; only the most recently used stay."""
    made[key] = made.pop(key) if key in made else make()
    while len(made) > KEPT:
        del made[next(iter(made))]
    return made[key]


def _model_identity(language: Language) -> dict[str, Any]:
    """Name, what tells one version from another (a hub commit, or the wheel's hash), template."""
    found: dict[str, Any] = {"name": language.name}
    if language.template:
        found["template"] = dict(language.template)
    if commit := getattr(language.model.config, "_commit_hash", None):
        found["revision"] = commit
    if language.name == embedded.NAME:
        found["revision"] = f"{embedded.PACKAGE} {embedded.VERSION} {embedded.WHEEL_SHA256[:16]}"
    return found


def _texts(record: Round, language: Language) -> dict[int, str]:
    ids = {*record.draft.tokens.tolist(), *record.verdict.choices.tolist(), *record.committed}
    if record.candidates is not None:
        ids |= set(record.candidates.ids[:, :TEXTED].flatten().tolist())
    if record.draft.offers is not None:
        ids |= set(record.draft.offers.ids.flatten().tolist())
    if record.block is not None:
        ids |= {*record.block.state.tolist()}
        ids |= {t for step in record.block.steps for t in step.ranking.ids.flatten().tolist()}
        ids |= {edit.token for edits in record.draft.edits for edit in edits}
    if record.beliefs is not None:
        ids |= set(record.beliefs.top_ids.flatten().tolist())
    return {token: language.piece(token) for token in sorted(ids) if token >= 0}
