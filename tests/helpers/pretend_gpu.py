"""A pretend GPU for machines without one: tensors whose device is another and whose numbers are on
the CPU. It refuses what a GPU refuses: mixing tensors of both, and handing out memory as NumPy's.

The device is named ``meta``, because torch allows no ``cuda`` tensors where it was built without.

A replay of a captured graph runs the captured function again, into the memory of its first outputs:
an output kept over the next replay is overwritten, as on a GPU. This does not show what a GPU's
kernels compute, nor what else a capture refuses: ``tests/core/models/test_cuda_graphs.py`` tests
that on the meta device.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from core.models.cuda_graphs import CapturedFunction, PaddedForward
from core.models.target import Target

aten = torch.ops.aten
HERE = torch.device("meta")
MOVES = {aten._to_copy.default, aten.to.device, aten.to.dtype_layout, aten.copy_.default}
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}


@dataclass
class Counts:
    """Launches (a replay is one) and transfers that the host waits for."""

    launches: int = 0
    waits: int = 0
    replaying: bool = False  # a replay's kernels are not launched one by one


counts = Counts()


def padded_forwards(target: Target) -> dict[int, PaddedForward]:
    """A target's padded forwards on the present cache, by rows."""
    found = target._place.forwards.items()
    return {rows: forward for (layers, rows), forward in found if layers == target.layers}


class OnGPU(torch.Tensor):
    """``held``: the numbers, on the CPU."""

    @staticmethod
    def __new__(cls, held):
        with torch.inference_mode(False):  # in it nothing could be written into a slice
            return torch.Tensor._make_wrapper_subclass(
                cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(),
                dtype=held.dtype, device=HERE, requires_grad=held.requires_grad,
            )  # fmt: skip

    def __init__(self, held):
        self.held = held

    def __repr__(self):
        return f"OnGPU({self.held})"

    def tolist(self):
        counts.waits += 1
        return self.held.tolist()

    def __getitem__(self, index):
        return super().__getitem__(as_index(index))

    def __setitem__(self, index, value):
        super().__setitem__(as_index(index), value)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


def as_index(index):
    """A list in an index would become a tensor without numbers."""
    if isinstance(index, tuple):
        return tuple(map(as_index, index))
    return torch.tensor(index) if isinstance(index, list) else index


def run(func, args, kwargs):
    """The kernel on the numbers, if a GPU would take these tensors together."""
    given = tree_leaves((args, kwargs))
    assert not any(is_new(t) and t.is_meta for t in given), f"{func} lost its numbers"
    ours = [t for t in given if isinstance(t, OnGPU)]
    if ours and func not in MOVES:
        refuse_mixed(func, args, kwargs)
    named = next((d for d in given if isinstance(d, torch.device)), None)
    out = func(*tree_map(numbers, args), **tree_map(numbers, kwargs))
    there = named == HERE if named is not None else bool(ours)
    if not counts.replaying and (there or ours):
        counts.launches += func in MOVES or not func.is_view
        counts.waits += not there or func is aten._local_scalar_dense.default
    if func is aten.copy_.default:
        return args[0]
    if func in MOVES and there != bool(ours):
        out = out.clone()  # a move to where the numbers already lie
    known = {id(t.held): t for t in ours}  # a kernel that works in place gives back what it took
    return tree_map(lambda t: known.get(id(t), OnGPU(t)) if is_new(t) else t, out) if there else out


def is_new(value):
    return isinstance(value, torch.Tensor) and not isinstance(value, OnGPU)


def numbers(value):
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return value.held if isinstance(value, OnGPU) else value


def refuse_mixed(func, args, kwargs):
    """A number of the host may come along, and an index into what lies on the GPU."""
    if func in INDEXED and isinstance(args[0], OnGPU):
        args = (args[0], *args[2:])
    if any(is_new(t) and t.dim() > 0 for t in tree_leaves((args, kwargs))):
        raise RuntimeError(f"{func}: Expected all tensors to be on the same device, cuda:0 and cpu")


class Intercept(TorchDispatchMode):
    """Intercepts calls that make tensors without tensor arguments."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return run(func, args, kwargs or {})


class Graph:
    """Stands for ``torch.cuda.CUDAGraph``."""

    def __init__(self, run, outputs):
        self._run, self._outputs, self.replays = run, outputs, 0

    def replay(self):
        counts.replaying = True
        for out, new in zip(self._outputs, self._run(), strict=True):
            out.copy_(new)
        counts.replaying = False
        counts.launches += 1
        self.replays += 1


def capture(function):
    counts.replaying = True
    function._outputs = tuple(out.clone() for out in function._run())
    counts.replaying = False
    return Graph(function._run, function._outputs)


@contextmanager
def gpu(monkeypatch):
    """In this context, the device ``HERE`` is a GPU."""
    import torch._dynamo  # names torch.Generator as a type when it is read first

    monkeypatch.setattr(CapturedFunction, "_capture", capture)
    init = CapturedFunction.__init__
    monkeypatch.setattr(
        CapturedFunction, "__init__", lambda self, run, _: init(self, run, torch.device("cuda"))
    )
    made = torch.tensor  # on the meta device it makes no numbers
    monkeypatch.setattr(
        torch, "tensor", lambda data, device="cpu", **kind: made(data, **kind).to(device)
    )
    generator = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device="cpu": generator("cpu"))
    with Intercept():
        yield
