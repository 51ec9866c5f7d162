"""llama.cpp on a GGUF file: what a laptop's user would run instead, timed beside our engine.

It is only a clock. Its logits differ from the target's: it multiplies the stored, quantised weights
with activations that it rounds to 8 bits, and keeps keys and values in half precision. Nothing is
ever measured with them, and its greedy text may part from ours.

It runs on the CPU through cyllama, which is optional. Of the bindings on the package index it is
the one that installs in seconds on every Python and decodes given token ids: llama-cpp-python is
compiled while it installs, xllamacpp has a server only. cyllama's wheels for x86-64 use AVX2 and
FMA, not AVX-512. Light at the top: no torch.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core.errors import UserError

PACKAGE = "cyllama"
AT_ONCE = 512  # tokens of a prompt in one call: llama.cpp's own physical batch


def check_installed() -> None:
    """Raises UserError, saying how to install it, where the binding is missing."""
    if find_spec(PACKAGE) is None:
        raise UserError(f"llama.cpp is not installed: pip install {PACKAGE}")


@dataclass(frozen=True)
class Decoded:
    """A greedy text. ``seconds`` after the prompt's own pass, which gives the first token."""

    tokens: tuple[int, ...]
    prompt_seconds: float
    seconds: float


@dataclass(frozen=True, eq=False)
class LlamaCpp:
    """A loaded GGUF.

    threads  as many as our engine uses
    weights  how they are stored, "Q4_1"; ``bytes`` of them, all read once for every token
    """

    library: Any
    model: Any
    context: Any
    sampler: Any
    threads: int
    weights: str
    bytes: int

    @staticmethod
    def load(file: Path, threads: int, capacity: int) -> LlamaCpp:
        """``capacity``: tokens of the longest text. Raises UserError for a file it cannot read."""
        check_installed()
        library: Any = import_module(f"{PACKAGE}.llama.llama_cpp")
        library.disable_logging()
        library.ggml_backend_load_all()
        options, sizes = library.LlamaModelParams(), library.LlamaContextParams()
        options.n_gpu_layers = 0
        sizes.n_ctx, sizes.n_batch = capacity, AT_ONCE
        sizes.n_threads = sizes.n_threads_batch = threads
        sizes.offload_kqv = sizes.op_offload = False
        try:
            model = library.LlamaModel(str(file), options)
            context = library.LlamaContext(model, sizes)
        except Exception as error:  # its own types, and they differ between versions
            raise UserError(f"llama.cpp cannot load {file.name}: {error}") from error
        sampler = library.LlamaSampler(library.LlamaSamplerChainParams())
        sampler.add_greedy()
        kind = " ".join(str(model.desc).split()[2:])  # after family and size
        return LlamaCpp(library, model, context, sampler, threads, kind, int(model.size))

    @property
    def version(self) -> str:
        """The binding's, and what llama.cpp says of the CPU's instructions where it tells."""
        told = getattr(self.library, "llama_print_system_info", str)()
        flags = [part.split("=")[0].split(":")[-1].strip() for part in told.split("|")]
        used = " ".join(flag for flag in flags if flag.startswith(("AVX", "NEON", "SVE", "AMX")))
        return f"{PACKAGE} {metadata.version(PACKAGE)}" + (f", {used}" if used else "")

    def decode(self, prompt: Sequence[int], count: int, stop: Collection[int]) -> Decoded:
        """At most ``count`` new tokens after a prompt's ids; a stop token is the last."""
        began = time.perf_counter()
        self.context.kv_cache_clear()
        for low in range(0, len(prompt), AT_ONCE):
            token = self._next(list(prompt[low : low + AT_ONCE]), low)
        tokens, first = [token], time.perf_counter()
        while len(tokens) < count and token not in stop:
            token = self._next([token], len(prompt) + len(tokens) - 1)
            tokens.append(token)
        return Decoded(tuple(tokens), first - began, time.perf_counter() - first)

    def _next(self, tokens: list[int], place: int) -> int:
        """The token after ``tokens``, which stand from ``place`` on."""
        self.context.decode(self.library.llama_batch_get_one(tokens, place))
        return self.sampler.sample(self.context, -1)
