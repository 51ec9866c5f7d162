"""Make the parts of the one table (``analysis.experiments.family``), each kept as it is done.

texts.jsonl     the target's own texts
accepted.jsonl  what each method accepts on each text
timed.jsonl     decodings on every n-th prompt, with a clock

Rounds with the default rule follow from the target's own text (``core.decoding.along``): only
drafting is computed, and each drafter walks along a text once for all of its methods and budgets.
Methods whose rounds do not follow from a text are run (``observed``).

What decides a part is in its key, the weights' hash too: with other weights the same call makes
anew only what they decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.collected.collect import text_with_tail
from analysis.experiments.bench import Timing, Workload, timings
from analysis.experiments.family import Accepted, Cell, TemperatureResults, Timed
from analysis.experiments.sweep import Plan, variant_label
from analysis.experiments.variants import Variant
from analysis.measures.probe import observe, probe_along
from core import VERSION
from core.decoding.along import Reading, Setup, Simulated, read_along, rounds, why_run
from core.decoding.decode import Decoder
from core.decoding.engine import Engine, environment, model_identity
from core.decoding.request import RunRequest
from core.drafting.session import Drafter, layers_read
from core.journal import Journal, key_of
from core.methods.names import PLAIN
from core.methods.registry import choose, find_method
from core.models.language import Language
from core.models.target import Target
from core.progress import Steps
from core.rounds.round import Probe, Sampling

GENERATE = Variant("generate", None)  # transformers' own decoding


Walks = Iterable[tuple[Drafter, Sequence[Setup]]]


@dataclass(frozen=True, eq=False)
class Text:
    """The target's own text: a prompt, an answer up to ``end``, and a tail that drafts reach.

    answer  index of the first new token
    """

    tokens: tuple[int, ...]
    answer: int
    end: int

    @staticmethod
    def written(
        language: Language, prompt: Sequence[int], new_tokens: int, sampling: Sampling, tail: int
    ) -> Text:
        """By plain decoding, ``tail`` tokens past its end."""
        found = text_with_tail(Target(language.model), prompt, new_tokens, sampling, tail)
        return Text(tuple(found["tokens"].tolist()), len(prompt), int(found["end"]))


def accepted(walks: Walks, reading: Reading, end: int) -> Iterator[tuple[str, Accepted]]:
    """Yield each setup's name and what it accepts on a text that ends before ``end``."""
    for drafter, setups in walks:
        found = {setup.name: Accepted() for setup in setups}
        for each in rounds(drafter, reading, (reading.answer, end - 1), setups):
            found[each.setup.name].add(each.verdict.accepted + 1, _probe(each))
        yield from found.items()


def _probe(each: Simulated) -> Probe | None:
    rows = list(each.verdict.path[: each.at.session.max_depth])
    path, wanted = each.draft.tokens[rows].tolist(), each.verdict.target_tokens[rows]
    return probe_along(each.at.session, path, each.at.logits(len(rows)), wanted)


def observed(engine: Engine, request: RunRequest) -> Accepted:
    """Count what a real run accepts."""
    found = Accepted()
    for record in engine.start(request, observe).rounds:
        if record.committed:
            found.add(record.accepted + 1, record.probe)
    return found


@dataclass(frozen=True, eq=False)
class Loaded:
    """A variant with its parts. ``why_run``: why its rounds do not follow from a text, or ""."""

    variant: Variant
    decoder: Decoder
    weights: str
    why_run: str


class Tabulation:
    """The work of a plan in its folder.

    timed_every  prompts are timed if their number, from 0, is a multiple of it; 0: none is
    machine      what a clock's numbers hold for
    """

    def __init__(
        self, engine: Engine, plan: Plan, folder: Path, timed_every: int, machine: dict[str, Any]
    ):
        self.engine, self.plan, self.machine = engine, plan, machine
        self.language = engine.prepare()
        # of each text its prompt in the plan, and the turn, from 0: it follows the one before
        self._turns = [
            (prompt, turn) for prompt in plan.prompts for turn in range(1 + len(prompt.more))
        ]
        self.numbers = range(len(self._turns))
        self.timed = self.numbers[::timed_every] if timed_every else range(0)
        self._texts, self._accepted, self._timed = (
            Journal(folder / f"{name}.jsonl") for name in ("texts", "accepted", "timed")
        )
        self.loaded = {each.variant: each for each in self._load()}
        place = environment(self.language)
        self._facts = [
            VERSION, model_identity(self.language), plan.terms.max_new_tokens,
            *(place[name] for name in ("dtype", "device", "tokenizer_hash")),
        ]  # fmt: skip
        drafters = [each.decoder.drafter for each in self.loaded.values() if each.decoder.drafter]
        self._tail = 1 + max((drafter.max_depth for drafter in drafters), default=0)
        self._layers = layers_read(drafters)

    def _load(self) -> Iterator[Loaded]:
        """Drafter by drafter, so that each is loaded once."""

        def kind(variant: Variant) -> str:
            info = find_method(str(variant.method)).drafter_info
            return info.name if info is not None else ""

        for variant in sorted(self.plan.variants, key=kind):
            name = str(variant.method)
            chosen = choose(name, dict(variant.options))
            decoder = self.engine.load(chosen)
            weights = self.engine.identity(chosen, decoder.drafter).get("sha256", "")
            yield Loaded(variant, decoder, weights, why_run(decoder))

    @property
    def run_anyway(self) -> dict[str, str]:
        """Methods that are run on all prompts → why."""
        return {str(v.method): one.why_run for v, one in self.loaded.items() if one.why_run}

    # ── what follows from texts ──────────────────────────────────────────────────────────────────

    def draft(self, temperature: float, report: Steps) -> None:
        """Count and keep what every variant accepts on each prompt; ``report`` hears of each."""
        for number in self.numbers:
            report(number, f"T = {temperature:g}, prompt {number + 1}")
            missing = [
                each
                for each in self.loaded.values()
                if each.decoder.drafter and self._key(each.variant, number, temperature)
                not in self._accepted
            ]  # fmt: skip
            text = self._text(number, temperature)
            for variant, found in self._accept(missing, text, number, temperature):
                self._accepted.add(self._key(variant, number, temperature), asdict(found))

    def _text(self, number: int, temperature: float) -> Text:
        prompt = self._asked(number, temperature)
        key = self._text_key(prompt, temperature)
        if key not in self._texts:
            ids, sampling = self.language.encode_chat(prompt), Sampling(temperature)
            new_tokens = self.plan.terms.max_new_tokens
            text = Text.written(self.language, ids, new_tokens, sampling, self._tail)
            self._texts.add(key, asdict(text))
        kept = self._texts.get(key)
        return Text(tuple(kept["tokens"]), kept["answer"], kept["end"])

    def _text_key(self, prompt: str, temperature: float) -> str:
        return key_of(self._facts, temperature, prompt, self._tail)

    def _prompt(self, number: int, temperature: float) -> str | None:
        """The prompt of a text; None where it follows a text that is not there yet."""
        prompt, turn = self._turns[number]
        for _ in range(turn):
            kept = self._texts.get(self._text_key(prompt.text, temperature))
            if kept is None:
                return None
            answer = kept["tokens"][kept["answer"] : kept["end"]]
            prompt = prompt.answered(self.language.text(answer))
        return prompt.text

    def _asked(self, number: int, temperature: float) -> str:
        prompt = self._prompt(number, temperature)
        assert prompt is not None, "texts are written in order"
        return prompt

    def _accept(
        self, missing: Sequence[Loaded], text: Text, number: int, temperature: float
    ) -> Iterator[tuple[Variant, Accepted]]:
        walks: dict[int, tuple[Drafter, list[Setup]]] = {}
        variants = dict[str, Variant]()
        for each in missing:
            if each.why_run:
                request = self._request(each.variant, number, temperature)
                yield each.variant, observed(self.engine, request)
                continue
            builder, drafter = each.decoder.builder, each.decoder.drafter
            assert builder is not None and drafter is not None
            builder = builder.for_run(Sampling(temperature))
            name = variant_label(each.variant)
            variants[name] = each.variant
            setups = walks.setdefault(id(drafter), (drafter, []))[1]
            setups.append(Setup(name, builder, each.variant.budget))
        if walks:
            target = Target(self.language.model, self._layers, padded=False)
            reading = read_along(target, text.tokens, text.answer)
            for name, found in accepted(walks.values(), reading, text.end):
                yield variants[name], found

    # ── what takes a clock ───────────────────────────────────────────────────────────────────────

    @property
    def rivals(self) -> tuple[Variant, ...]:
        """The variants that decode every timed prompt, transformers' generate() first."""
        return (GENERATE, *self.plan.variants)

    def time(self, temperature: float, report: Steps) -> None:
        """Every variant on the prompts that are timed; ``report`` hears of each decoding."""
        if not self.timed:
            return
        prompts = tuple(self._asked(number, temperature) for number in self.timed)
        plan = Workload(prompts, self._request(GENERATE, 0, temperature), repeats=1)

        def key(prompt: int, variant: Variant) -> str:
            return self._timed_key(variant, self.timed[prompt], temperature)

        def done(prompt: int, variant: Variant) -> bool:
            return key(prompt, variant) in self._timed

        for timing in timings(self.engine, plan, self.rivals, report, done):
            self._timed.add(key(timing.prompt, timing.variant), _kept(timing))

    def _request(self, variant: Variant, number: int, temperature: float) -> RunRequest:
        return RunRequest(
            prompt=self._asked(number, temperature),
            method=variant.method or PLAIN,
            budget=variant.budget,
            max_new_tokens=self.plan.terms.max_new_tokens,
            temperature=temperature,
            options=variant.options,
        )

    # ── what is known ────────────────────────────────────────────────────────────────────────────

    def measured(self, temperature: float) -> TemperatureResults:
        """Gather the results so far at one temperature."""
        cells: dict[Variant, dict[int, Cell]] = {variant: {} for variant in self.plan.variants}
        for variant, number in ((v, n) for v in cells for n in self.numbers):
            if (accepted := self._accepted_by(variant, number, temperature)) is not None:
                timed = self._timed.get(self._timed_key(variant, number, temperature))
                cells[variant][number] = Cell(accepted, Timed(**timed) if timed else None)
        found = {n: self._timed.get(self._timed_key(GENERATE, n, temperature)) for n in self.timed}
        generate = {number: Timed(**each) for number, each in found.items() if each}
        ran = frozenset(variant for variant, each in self.loaded.items() if each.why_run)
        prompts = [prompt for prompt, _ in self._turns]
        return TemperatureResults(temperature, prompts, cells, generate, ran)

    def _accepted_by(self, variant: Variant, number: int, temperature: float) -> Accepted | None:
        if variant.method != PLAIN:
            kept = self._accepted.get(self._key(variant, number, temperature))
            return Accepted(**kept) if kept else None
        prompt = self._prompt(number, temperature)
        text = prompt and self._texts.get(self._text_key(prompt, temperature))
        return Accepted([1] * (text["end"] - text["answer"] - 1)) if text else None

    def _key(self, variant: Variant, number: int, temperature: float) -> str:
        own = self.loaded.get(variant)
        files = dict(self.plan.files)
        used = [files.get(str(name)) for name in (variant.method, *dict(variant.options).values())]
        return key_of(
            self._facts, temperature, self._prompt(number, temperature), variant.method,
            variant.budget, variant.options, own.weights if own else "", used,
        )  # fmt: skip

    def _timed_key(self, variant: Variant, number: int, temperature: float) -> str:
        return key_of(self._key(variant, number, temperature), self.machine)


def _kept(timing: Timing) -> dict[str, Any]:
    return {
        "seconds": timing.seconds,
        "tokens": timing.tokens,
        "lengths": timing.lengths,
        "stages": timing.stages and dict(timing.stages),
    }
