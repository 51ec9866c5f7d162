"""Recording transformers' assisted generation as a trace.

    with recorded(model, Path("run.jsonl.gz"), tokenizer):
        model.generate(**inputs, assistant_model=assistant)

Prompt lookup, early exit, DFlash and multi-token prediction pass through the same place of
``generate`` (transformers 5, ``_assisted_decoding``): a candidate generator that is asked for
candidates and told how many of them held. Both calls are listened to; nothing is changed. What is
written is what transformers computed: q where the generator tells its logits, p after every
candidate, both after the logits processors.

Shapes: C candidates of a round, V vocabulary.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

from analysis.measures.checkpoints import common_length
from analysis.measures.probe import observe
from core.decoding.decode import Scene, with_observation
from core.drafting.best import top
from core.drafting.session import Children, DraftSession
from core.errors import UserError
from core.rounds.draft import NOT_ASKED, Array, Candidates, Draft, Proposal
from core.rounds.round import Round, Times
from core.traces.record import Recorder, with_proposal

log = logging.getLogger("draftscope")
LISTED = 16  # of the drafter's best tokens at each place that a trace keeps
_SEAM = "_get_candidate_generator"


@contextmanager
def recorded(
    model: Any, path: Path, tokenizer: Any = None, method: str = "", **header: Any
) -> Iterator[None]:
    """Record the one ``generate`` call of the block at ``path`` (.jsonl or .jsonl.gz).

    tokenizer  gives tokens their text; None: ids are shown
    method     what tables call it; "": "transformers" and the kind of its candidate generator
    header     other fields of ``core.traces.schema.Header``

    A block that fails leaves a trace without a footer. So does an error of the recording itself,
    which ends it with one line in the log, and not the generation. Raises UserError for a model
    that cannot be listened to, a second call, or a generation without candidates.
    """
    make = getattr(model, _SEAM, None)
    if make is None:
        raise UserError("this model has no assisted generation that could be recorded")
    listener = _Listener(model, path, tokenizer, method, header)

    def made(*args: Any, **more: Any) -> Any:
        return listener.listen(make(*args, **more), more["generation_config"])

    setattr(model, _SEAM, made)
    try:
        yield
        if listener.generator is None:
            raise UserError(
                "nothing was drafted: give generate an assistant_model or prompt_lookup_num_tokens"
            )
        listener.close(whole=True)
    except BaseException:
        listener.close(whole=False)
        raise
    finally:
        delattr(model, _SEAM)


@dataclass(eq=False)
class _Listener:
    """Joins what the two calls of a round say into rounds of a trace.

    text    the tokens before the candidates; ``tokens``: the candidates [C], ``logits`` [C, V]
    times   when the candidates were asked for, and when they were there
    on      False after an error of its own
    """

    model: Any
    path: Path
    tokenizer: Any
    method: str
    header: dict[str, Any]
    generator: Any = None
    config: Any = None
    recorder: Recorder | None = None
    text: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logits: Tensor | None = None
    times: tuple[float, float] = (0.0, 0.0)
    on: bool = True

    def listen(self, generator: Any, config: Any) -> Any:
        """The generator, whose calls are heard from now on."""
        if self.generator is not None:
            raise UserError("a recording holds one call of generate: begin another one")
        self.generator, self.config = generator, config
        ask, tell = generator.get_candidates, generator.update_candidate_strategy

        def get_candidates(input_ids: Tensor, *args: Any, **more: Any) -> Any:
            began = time.perf_counter()
            candidates, logits = ask(input_ids, *args, **more)
            self.times = (began, time.perf_counter())
            self.text = input_ids[0].tolist()
            self.tokens = candidates[0, len(self.text) :].tolist()
            self.logits = None if logits is None else logits[0]
            return candidates, logits

        def update_candidate_strategy(input_ids: Tensor, scores: Tensor, *args: Any) -> Any:
            if self.on:
                self._guarded(input_ids[0, len(self.text) :].tolist(), scores[0])
            return tell(input_ids, scores, *args)

        generator.get_candidates = get_candidates
        generator.update_candidate_strategy = update_candidate_strategy
        return generator

    @property
    def _greedy(self) -> bool:
        """Whether its tokens are the target's best ones, and not those of a mixture with q."""
        mixed = getattr(self.config, "assistant_ensemble_weight", None) is not None
        return not self.config.do_sample and not mixed

    def close(self, whole: bool) -> None:
        if self.recorder is not None:
            error = None if whole else RuntimeError
            self.recorder.__exit__(error, None, None)
            self.recorder = None

    def _guarded(self, valid: list[int], scores: Tensor) -> None:
        """One round. Nothing that fails here may end the user's generation."""
        try:
            self._round(valid, scores)
        except Exception as error:
            self.on = False
            log.warning("the recording at %s ended: %s", self.path, error or type(error).__name__)
            with suppress(OSError):
                self.close(whole=False)

    def _round(self, valid: list[int], scores: Tensor) -> None:
        """One round: ``valid`` are the tokens that came into the text, scores [C + 1, V]."""
        if self.recorder is None:
            if not self.tokens:  # the prompt's own pass: its token is the first root
                self.recorder = self._begin(len(self.text))
                return
            # candidates hang from the prompt's last token: it is the first root
            self.recorder = self._begin(len(self.text) - 1)
        count, said = len(self.tokens), valid
        accepted = common_length(self.tokens, said)
        if accepted == len(valid) and self._greedy:  # cut at the text's end
            said = scores.argmax(-1).tolist()
            accepted = common_length(self.tokens, said)
        bonus = said[accepted] if accepted < len(said) else -1  # -1: the text is cut before it
        log_q = None
        if self.logits is not None:
            rows = self.logits.float().log_softmax(-1)
            own = rows.gather(1, torch.tensor(self.tokens, device=rows.device)[:, None])
            log_q = [0.0, *own[:, 0].tolist()]
        began, there = self.times
        drawn = None if self.logits is not None else False  # without q it samples p and compares
        self.recorder.round(
            [self.text[-1], *self.tokens],
            list(range(-1, count)),
            list(range(accepted + 1)),
            bonus,
            log_q,
            times=Times(draft=there - began, verify=time.perf_counter() - there),
            committed=valid,
            more=lambda record: self._seen(record, scores),
            drawn=drawn,
        )

    def _seen(self, record: Round, scores: Tensor) -> Round:
        """The round with the drafter's lists, p, TVD and coverage."""
        session = None if self.logits is None else _Told(self.logits.float().log_softmax(-1))
        rule = SimpleNamespace(sampler=_Greedy() if self._greedy else _Unknown())
        draft = cast(Draft, record.draft)
        parts = (cast(Any, session), cast(Any, rule))
        seen = observe(Scene(draft, record.verdict, scores, *parts, position=record.position))
        if session is not None:
            best = top(session.rows, LISTED)
            lists = Candidates(best.indices.cpu().numpy(), best.values.cpu().numpy())
            after = torch.arange(len(draft), dtype=torch.int32).numpy()
            after[-1] = NOT_ASKED
            draft = with_proposal(draft, Proposal(lists, after, session.max_depth, read=1))
        return with_observation(replace(record, draft=draft), seen)

    def _begin(self, prompt: int) -> Recorder:
        """The trace of a text whose first root is token ``prompt`` of all."""
        text, config = self.text, self.config
        kind = type(self.generator).__name__.replace("CandidateGenerator", "")
        rule = {"temperature": 0.0}
        if config.do_sample:
            rule = {n: getattr(config, n) for n in ("temperature", "top_k", "top_p")}
        tokenizer = self.tokenizer
        decode = None if tokenizer is None else lambda token: tokenizer.decode([token])
        assistant = getattr(self.generator, "assistant_model", None)
        known = {
            "settings": {
                "max_new_tokens": config.max_length - prompt,
                "prompt_tokens": len(text),
                "sampling": rule,
            },
            "model": {"name": _name(self.model)},
            "drafter": {"kind": kind} | ({"checkpoint": _name(assistant)} if assistant else {}),
            "prompt_text": "" if tokenizer is None else tokenizer.decode(text),
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": str(self.model.device),
        }
        method = self.method or f"transformers {kind}"
        return Recorder(self.path, method, text[:prompt], text=decode, **(known | self.header))


def _name(model: Any) -> str:
    return str(getattr(model, "name_or_path", "") or type(model).__name__)


@dataclass(frozen=True, eq=False)
class _Told(DraftSession):
    """A session that knows log q along the candidates, [C, V], and nothing else."""

    rows: Tensor

    @property
    def max_depth(self) -> int:
        return len(self.rows)

    def expand(self, states: Array) -> Children:
        raise NotImplementedError("its generator has drafted")

    def log_q(self, path: Sequence[int]) -> Tensor:
        return self.rows[: len(path)]


class _Greedy:
    def choose(self, logits: Tensor, positions: list[int]) -> Tensor:
        return logits.argmax(-1)


class _Unknown:
    """The choices of a target that is sampled, or mixed with q, are not known where the walk never
    came: −1 everywhere."""

    def choose(self, logits: Tensor, positions: list[int]) -> Tensor:
        return torch.full((len(logits),), -1, device=logits.device)
