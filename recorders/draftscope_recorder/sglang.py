"""SGLang: its verification is listened to in the scheduler's process, through its ``HookRegistry``.

``HOOKS`` is the table of what is read where. Names move between versions: where one is missing,
``install`` says so in one sentence and records what the others give, or nothing.

A step of a draft tree: ``organize_draft_results`` has all candidates with the product of q along
their paths and chooses those to verify, ``build_tree_kernel_efficient`` links the chosen ones,
``eagle_sample`` has the target's logits at every row and puts out tokens. The first of them runs
inside a CUDA graph: what it held while the graph was captured is kept, and holds each replay's
values.
"""

# pyright: reportMissingImports=false
# SGLang is only where this runs.

from __future__ import annotations

import atexit
import functools
import inspect
import logging
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import options
from .listening import Listener, Rows, chosen_options, first_message, missing, processors

log = logging.getLogger("sglang.draftscope")
ANY_K = 1 << 30  # SGLang's top_k where it is off

Named = Mapping[str, Any]  # a call's arguments by name
Step = tuple[Rows, dict[str, Any], dict[str, Any]]  # its rows, facts and arrays


@dataclass(frozen=True)
class Hook:
    """A need of the recorder, a name of SGLang, and the arguments that are read of its calls."""

    need: str
    name: str
    arguments: tuple[str, ...]
    vital: bool = True  # without it nothing is recorded


SAMPLE = Hook(
    "tokens and p",
    "sglang.srt.speculative.eagle_utils.eagle_sample",
    ("verify_input", "batch", "logits_output"),
)
RESULT = Hook(
    "ends of requests",
    "sglang.srt.managers.scheduler.Scheduler.process_batch_result",
    ("batch",),
)
ORGANIZE = Hook(
    "q",
    "sglang.srt.speculative.eagle_utils.organize_draft_results",
    ("score_list", "token_list"),
    vital=False,
)
BUILD = Hook(
    "q",
    "sglang.srt.speculative.eagle_utils.build_tree_kernel_efficient",
    ("top_scores_index",),
    vital=False,
)
SERVER = Hook(
    "the server's settings", "sglang.srt.runtime_context.get_server_args", (), vital=False
)
HOOKS = (SAMPLE, RESULT, ORGANIZE, BUILD, SERVER)


def install() -> None:
    """Register the hooks. SGLang calls this in each process; only schedulers call the hooks."""
    if (chosen := chosen_options(log)) is None:
        return
    try:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    except ImportError:
        log.warning("draftscope: this SGLang has no HookRegistry: nothing is recorded")
        return
    there = {hook: _there(hook) for hook in HOOKS}
    if not all(there[hook] for hook in HOOKS if hook.vital):
        return
    listener = Verification(chosen=chosen, log=log, server=_called if there[SERVER] else object)
    heard = {SAMPLE: listener.sample, RESULT: listener.result}
    if chosen.q and there[ORGANIZE] and there[BUILD]:
        heard |= {ORGANIZE: listener.organize, BUILD: listener.build}
    for hook, around in heard.items():
        HookRegistry.register(hook.name, _only_while_on(listener, around), HookType.AROUND)
    atexit.register(listener.close)


def _there(hook: Hook) -> bool:
    """Whether this version has a name with these arguments; if not, a sentence says so."""
    try:
        takes = inspect.signature(pkgutil.resolve_name(hook.name)).parameters
        lacking = [name for name in hook.arguments if name not in takes]
    except Exception:  # importing a module of an engine may fail in any way
        missing(log, "SGLang", hook.name, hook.need, hook.vital)
        return False
    if lacking:
        missing(log, "SGLang", f"{lacking[0]} in {hook.name}", hook.need, hook.vital)
    return not lacking


def _called() -> Any:
    return pkgutil.resolve_name(SERVER.name)()


def _only_while_on(listener: Listener, around: Callable[..., Any]) -> Callable[..., Any]:
    def hook(own: Callable[..., Any], *args: Any, **more: Any) -> Any:
        return around(own, args, more) if listener.on else own(*args, **more)

    return hook


def _named(own: Callable[..., Any], args: tuple[Any, ...], more: dict[str, Any]) -> Named:
    return _signature(own).bind(*args, **more).arguments


@functools.cache
def _signature(own: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(own)


@dataclass(frozen=True, eq=False)
class Offered:
    """All candidates of a draft, in the engine's own memory; shapes as in ``measuring.candidates``.

    chosen  which of them are drafted: its address names the draft
    """

    scores: Any
    tokens: Any
    beams: Any
    chosen: Any

    def copy(self, size: int) -> tuple[Any, ...]:
        """Copy those of the first requests: a graph is padded, and its memory written again."""
        return tuple(x[:size].clone() for x in (self.scores, self.tokens, self.beams, self.chosen))


@dataclass(eq=False, kw_only=True)
class Verification(Listener):
    """Joins what a scheduler's process says of a verification, and sends it.

    server    gives the server's settings, as far as this version tells them
    captured  candidates of the drafts that CUDA graphs make, by address
    eager     of the last draft that none made
    linked    the links of the last tree that was built, and a copy of its candidates
    message   what the writer is told first; None: nothing was verified here
    greedy    whether this device verifies greedily whatever a request asks for
    """

    server: Callable[[], Any]
    captured: dict[int, Offered] = field(default_factory=dict)
    eager: Offered | None = None
    linked: tuple[Any, tuple[Any, ...]] | None = None
    message: dict[str, Any] | None = None
    greedy: bool = False
    said: bool = False

    # ── the draft ────────────────────────────────────────────────────────────────────────────────

    def organize(self, own: Callable[..., Any], args: tuple[Any, ...], more: dict[str, Any]) -> Any:
        made = own(*args, **more)
        self.guarded(self.offered, own, args, more, made)
        return made

    def offered(self, own: Any, args: Any, more: Any, made: Any) -> None:
        """Keep the candidates: for the step that follows, or for every replay of a graph."""
        import torch

        called = _named(own, args, more)
        beams, chosen = made[0], made[1]
        scores = torch.cat(list(called["score_list"]), 1)
        tokens = torch.cat(list(called["token_list"]), 1)
        if scores.ndim != 3 or scores.shape[2] < 2:  # a chain: its scores are not q
            return
        if not beams.shape[1]:  # one depth: the list after the root alone
            beams = beams.new_full((len(beams), 1), -1)
        if scores.shape[:2] != beams.shape or tokens.shape[1] != scores[0].numel():
            self.without_q()
            return
        found = Offered(scores, tokens.view_as(scores), beams.long(), chosen)
        if _capturing(chosen):
            self.captured[chosen.data_ptr()] = found
        else:
            self.eager = found

    def without_q(self) -> None:
        if not self.said:
            self.said = True
            log.warning("draftscope: candidates are in a form that is not known: q is not recorded")

    def build(self, own: Callable[..., Any], args: tuple[Any, ...], more: dict[str, Any]) -> Any:
        copied = self.guarded(self.chosen_of, own, args, more)
        made = own(*args, **more)
        self.linked = (made[3], copied) if copied is not None else None  # made[3]: first children
        return made

    def chosen_of(self, own: Any, args: Any, more: Any) -> tuple[Any, ...] | None:
        chosen = _named(own, args, more)["top_scores_index"]
        at, eager = chosen.data_ptr(), self.eager
        of_graph = self.captured.get(at)
        found = eager if eager is not None and eager.chosen.data_ptr() == at else of_graph
        return None if found is None else found.copy(len(chosen))

    # ── the verification ─────────────────────────────────────────────────────────────────────────

    def sample(self, own: Callable[..., Any], args: tuple[Any, ...], more: dict[str, Any]) -> Any:
        before = self.guarded(self.before, own, args, more)
        made = own(*args, **more)
        if before is not None:
            self.guarded(self.after, *before, made)
        return made

    def before(self, own: Any, args: Any, more: Any) -> Step | None:
        """Read the tree and p, before the engine changes its logits in place."""
        import torch

        called = _named(own, args, more)
        tree, batch = called["verify_input"], called["batch"]
        if self.message is None:
            server = self.server()
            self.on, self.message = _writes(), self.described(tree, batch, server)
            self.greedy = _greedy(batch.device, server)
        if not self.on or batch.forward_mode.is_idle():
            return None
        logits, width = called["logits_output"].next_token_logits, int(tree.draft_token_num)
        for request in batch.reqs:
            if not self.known(request.rid):
                self.meet(request)
        names = [request.rid for request in batch.reqs]
        rows = self.rows(names, [width - 1] * len(names))
        if rows is None:
            return None
        from .measuring import candidates, parents

        size = len(names) * width
        links = (tree.retrieve_next_token, tree.retrieve_next_sibling)
        above = parents(*(rows.requests(x[: len(names)]) for x in links))
        # Made on the device: a copy from the host would wait for the forward before it.
        begins = torch.arange(len(rows.begins), device=above.device)[:, None] * width
        above = torch.where(above < 0, -1, above + begins).flatten().to(torch.int32)
        tokens = rows.of(tree.draft_token[:size]).to(torch.int32)
        arrays = self.measured(rows, logits[:size], above, tokens)
        # Copied: an engine of n-grams writes each step's positions over those of the one before.
        arrays["position"] = rows.requests(tree.positions[:size].view(-1, width)[:, 0].clone())
        linked, self.linked = self.linked, None
        if linked is not None and linked[0] is tree.retrieve_next_token:
            arrays |= candidates(*map(rows.requests, linked[1]))
        deepest = int(getattr(tree, "spec_steps", 0) or 0)
        return rows, {"rows": rows.facts, "roots": True, "deepest": deepest}, arrays

    def after(self, rows: Rows, facts: dict[str, Any], arrays: dict[str, Any], made: Any) -> None:
        """Record the tokens that came out: ``predict`` has the one after each accepted row."""
        import torch

        predict, index = made[0], made[2]
        out = torch.where(index < 0, -1, predict[index.clamp_min(0).long()])
        out = rows.requests(out[: len(rows.names)]).to(torch.int32)
        self.send(facts, arrays | {"out": out})

    def meet(self, request: Any) -> None:
        """Begin a request. SGLang writes temperature 0 as top_k 1."""
        sampling = request.sampling_params
        stops = set(sampling.stop_token_ids or ())
        if not sampling.ignore_eos:
            stops |= set(getattr(request, "eos_token_ids", None) or ())
            tokenizer = getattr(request, "tokenizer", None)
            eos = getattr(tokenizer, "eos_token_id", None)
            stops |= set() if eos is None else {eos}
            stops |= set(getattr(tokenizer, "additional_stop_token_ids", None) or ())
        own = getattr(sampling, "custom_params", None)
        greedy = self.greedy or sampling.top_k == 1
        others = ("multimodal_inputs", "input_embeds")
        of_tokens = all(getattr(request, name, None) is None for name in others)
        self.begin(
            request.rid,
            own.get(options.REQUEST) if isinstance(own, dict) else None,
            request.origin_input_ids if of_tokens else None,
            ANY_K if sampling.max_new_tokens is None else sampling.max_new_tokens,
            stops,
            {
                "temperature": 0.0 if greedy else sampling.temperature,
                "top_k": 0 if greedy or sampling.top_k >= ANY_K else sampling.top_k,
                "top_p": 1.0 if greedy else sampling.top_p,
            },
            processors(sampling),
        )

    # ── the end of requests ──────────────────────────────────────────────────────────────────────

    def result(self, own: Callable[..., Any], args: tuple[Any, ...], more: dict[str, Any]) -> Any:
        made = own(*args, **more)
        self.guarded(self.finished, own, args, more)
        return made

    def finished(self, own: Any, args: Any, more: Any) -> None:
        """End the requests that this result ended, and tell the writer: a server may idle now."""
        done = [each for each in _named(own, args, more)["batch"].reqs if each.finished()]
        for request in done:
            self.end(request.rid)
        if self.message is None and any(len(each.output_ids) > 1 for each in done):
            self.on = False
            log.warning(
                "draftscope: text was written and %s was not called, so nothing is recorded: "
                "speculative decoding is off, or drafts are verified elsewhere",
                SAMPLE.name.rpartition(".")[2],
            )
        if self.ended:
            self.send({"rows": []}, {})

    # ── the server ───────────────────────────────────────────────────────────────────────────────

    def header(self) -> dict[str, Any]:
        assert self.message is not None  # only what was verified is sent
        return self.message

    def described(self, tree: Any, batch: Any, server: Any) -> dict[str, Any]:
        told = {
            name: getattr(server, f"speculative_{name}", None)
            for name in ("num_steps", "eagle_topk", "accept_threshold_single",
                         "accept_threshold_acc", "use_rejection_sampling")
        }  # fmt: skip
        model = getattr(server, "model_path", "") or getattr(batch.model_config, "model_path", "")
        drafter = {"kind": str(getattr(server, "speculative_algorithm", None) or "").lower()}
        if path := getattr(server, "speculative_draft_model_path", None):
            drafter["checkpoint"] = str(path)
        budget = {"budget": int(tree.draft_token_num) - 1}
        return first_message(
            self.chosen,
            "SGLang",
            0,
            str(getattr(server, "tokenizer_path", "") or model),
            ("sglang",),
            model={"name": str(model)},
            drafter=drafter,
            dtype=str(getattr(batch.model_config, "dtype", "")).removeprefix("torch."),
            device=str(batch.device),
            settings=budget | {name: x for name, x in told.items() if x is not None},
            read=None,
            beam=told["eagle_topk"],
        )


def _greedy(device: Any, server: Any) -> bool:
    """Whether SGLang has no verification that samples on this device, and takes the best token."""
    import torch

    if torch.device(device).type in ("cpu", "xpu"):
        return True
    rejects = getattr(server, "speculative_use_rejection_sampling", False)
    return bool(torch.version.hip) and not rejects


def _capturing(values: Any) -> bool:
    """Whether a CUDA graph is being captured, which will write these values again."""
    import torch

    return values.is_cuda and torch.cuda.is_current_stream_capturing()


def _writes() -> bool:
    """One rank of a model writes: the first of those that verify alike."""
    try:
        from sglang.srt.runtime_context import get_parallel

        here = get_parallel()
        return here.attn_tp_rank == 0 and getattr(here, "attn_cp_rank", 0) == 0
    except Exception:  # another version
        pass
    try:
        from sglang.srt.distributed import get_tensor_model_parallel_rank

        return get_tensor_model_parallel_rank() == 0
    except Exception:  # not distributed at all
        return True
