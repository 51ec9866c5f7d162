"""SGLang's CPU kernels in plain torch, so that SGLang runs where it has no build.

SGLang 0.5.23 has a CPU engine, whose kernels (``sgl_kernel``) are built from source for Intel's
AMX. ``install`` puts these in their place: slow, and no more than EAGLE's trees and chains on a
Llama need. All else, from the scheduler to the drafters, is SGLang's own.
"""

from __future__ import annotations

import ctypes
import os
import sys
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

KEPT: list[torch.library.Library] = []  # a library is gone when nothing holds it


def install() -> None:
    """Before SGLang is imported, in each of its processes."""
    os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
    try:
        import torchvision  # pyright: ignore[reportMissingImports]  # noqa: F401
    except RuntimeError:  # of another build than torch, so without its operators
        lacking = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            lacking.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        KEPT.append(lacking)
    own = torch.library.Library("sgl_kernel", "DEF")
    for schema, kernel in OPERATORS:
        own.define(schema)
        own.impl(schema.partition("(")[0], kernel, "CPU")
    KEPT.append(own)
    module = ModuleType("sgl_kernel")
    vars(module).update(FUNCTIONS, __version__="0.4.10", __getattr__=_lacks)
    sys.modules["sgl_kernel"] = module
    from sglang.srt import runtime_context  # pyright: ignore[reportMissingImports]

    # The attention that asks for AMX is the one of SGLang's CPU engine which verifies trees.
    runtime_context._PLATFORM._install(has_amx=True)


def _lacks(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)

    def kernel(*args: Any, **more: Any) -> Any:
        raise NotImplementedError(f"{name} has no stand-in")

    return kernel


# ── attention ────────────────────────────────────────────────────────────────────────────────────


def _attended(
    q: Tensor, keys: Tensor, values: Tensor, seen: Tensor, scaling: float, cap: float
) -> Tensor:
    """q [n, H, D] over keys and values [m, G, D], where ``seen`` [n, m]."""
    keys, values = (
        x.float().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (keys, values)
    )
    scores = torch.einsum("nhd,mhd->hnm", q.float(), keys) * scaling
    scores = cap * torch.tanh(scores / cap) if cap > 0 else scores
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return torch.einsum("hnm,mhd->nhd", weights, values)


def _extend(
    q, k, v, out, keys, values, ks, vs, table, rows, lengths, news, starts, longest, scaling, cap,
    cross, window, encoder, sinks, tree, causal,
):  # fmt: skip
    """Texts grow by several tokens each; ``tree`` [B · n · n] says which of these see which."""
    assert causal and not cross and sinks is None and encoder is None
    for i, (row, length, new, at) in enumerate(
        zip(*(x.tolist() for x in (rows, lengths, news, starts)), strict=True)
    ):
        own, places = torch.arange(length - new, length)[:, None], torch.arange(length)
        seen = places <= own
        if tree is not None:
            seen[:, length - new :] = tree.view(len(lengths), new, new)[i].bool()
        if window > 0:
            seen &= places > own - window
        slots = table[row, :length].long()
        out[at : at + new] = _attended(
            q[at : at + new], keys[slots], values[slots], seen, scaling, cap
        )


def _decode(
    q, keys, values, ks, vs, out, k, v, written, logits, table, rows, lengths, scaling, cap,
    cross, window, encoder, sinks,
):  # fmt: skip
    """Texts grow by one token each, whose key and value are written first."""
    assert not cross and sinks is None and encoder is None
    if k is not None:
        keys[written.long()] = k.view(-1, *keys.shape[1:]).to(keys.dtype)
        values[written.long()] = v.view(-1, *values.shape[1:]).to(values.dtype)
    for i, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
        seen = torch.arange(length)[None] >= (length - window if window > 0 else 0)
        slots = table[row, :length].long()
        out[i] = _attended(q[i : i + 1], keys[slots], values[slots], seen, scaling, cap)[0]


OPERATORS = (
    (
        "extend_attention_cpu(Tensor q, Tensor? k, Tensor? v, Tensor(a!) out, Tensor keys, "
        "Tensor values, float ks, float vs, Tensor table, Tensor rows, Tensor lengths, "
        "Tensor news, Tensor starts, SymInt longest, float scaling, float cap, bool cross, "
        "SymInt window, Tensor? encoder, Tensor? sinks, Tensor? tree, bool causal) -> ()",
        _extend,
    ),
    (
        "decode_attention_cpu(Tensor q, Tensor(a!) keys, Tensor(b!) values, float ks, float vs, "
        "Tensor(c!) out, Tensor? k, Tensor? v, Tensor written, Tensor logits, Tensor table, "
        "Tensor rows, Tensor lengths, float scaling, float cap, bool cross, SymInt window, "
        "Tensor? encoder, Tensor? sinks) -> ()",
        _decode,
    ),
    ("init_cpu_threads_env(str cores) -> str", lambda cores: cores),
)


# ── places of the cache ──────────────────────────────────────────────────────────────────────────


def assign_req_to_token_pool_cpu(rows, table, starts, ends, places, width):
    """Write the places of each text's new tokens into its row of the table."""
    at = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        table[row, start:end] = places[at : at + end - start].to(table.dtype)
        at += end - start


def assign_extend_cache_locs_cpu(rows, table, starts, ends, places, width):
    """Read them, of the texts one after another."""
    at = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        places[at : at + end - start] = table[row, start:end]
        at += end - start


def assign_draft_cache_locs_contiguous_cpu(rows, table, lengths, places, width, beams, steps):
    """Read the places of a draft's beams, each of which has its own for all steps."""
    assign_extend_cache_locs_cpu(rows, table, lengths, lengths + beams * steps, places, width)


def build_draft_decode_metadata_cpu(table, rows, lengths, beams, steps, width):
    """The table [B · beams, width] of texts that go on by a beam's own places."""
    made = table[rows.long()].repeat_interleave(beams, 0)
    for i, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
        own = table[row, length : length + beams * steps].view(beams, steps)
        made[i * beams : (i + 1) * beams, length : length + steps] = own
    return made


def fill_accept_out_cache_loc_cpu(index, places, accepted):
    kept = index.flatten()[index.flatten() >= 0].long()
    accepted[: len(kept)] = places[kept]


def copy_all_layer_kv_cache_cpu(addresses, sizes, to, source):
    """Move tokens of the cache; every layer is an address and the bytes of one token."""
    for base, size in zip(addresses.tolist(), sizes.tolist(), strict=True):
        held = [ctypes.string_at(base + at * size, size) for at in source.tolist()]
        for at, each in zip(to.tolist(), held, strict=True):
            ctypes.memmove(base + at * size, each, size)


# ── trees ────────────────────────────────────────────────────────────────────────────────────────


def fill_bonus_tokens_cpu(tokens, lengths, bonus, width):
    last = torch.arange(len(lengths)) * width + lengths.long() - 1
    bonus[: len(lengths)] = tokens.flatten()[last].to(bonus.dtype)


def rotate_input_ids_cpu(ids, starts, lengths, last, at=None):
    """Each text of ids loses its first token and gets a last one."""
    for i, (start, length) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        if length > 0:
            ids[start : start + length - 1] = ids[start + 1 : start + length].clone()
            ids[start + length - 1 if at is None else int(at[i])] = last[i]


def build_tree_kernel_efficient_cpu(
    parents, chosen, lengths, mask, positions, index, child, sibling, beams, depth, width, mode
):
    """Link the chosen candidates: first child, next sibling, positions, and who sees whom."""
    assert mode == 1  # the mask of the drafted tokens alone
    seen = mask.view(len(lengths), width, width).zero_()
    for b, length in enumerate(lengths.tolist()):
        picked = chosen[b].tolist()
        above = [0]  # of every row, the row before it
        for place in picked:
            beam = place // beams
            above.append(picked.index(int(parents[b, beam])) + 1 if beam else 0)
        index[b] = torch.arange(width) + b * width
        for row in range(width - 1, 0, -1):
            sibling[b, row], child[b, above[row]] = int(child[b, above[row]]), row
        for row in range(width):
            path = [row]
            while path[-1]:
                path.append(above[path[-1]])
            seen[b, row, path] = True
            positions[b * width + row] = length + len(path) - 1


def verify_tree_greedy_cpu(
    predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token,
    retrive_next_sibling, target_predict,
):  # fmt: skip
    """Walk each tree while a child has the target's best token."""
    best = target_predict.flatten().tolist()
    for b, drafted in enumerate(candidates.tolist()):
        rows, child, sibling = (
            x[b].tolist() for x in (retrive_index, retrive_next_token, retrive_next_sibling)
        )
        row, accepted = 0, [rows[0]]
        while len(accepted) < accept_index.shape[1]:
            row = child[row]
            while row >= 0 and drafted[row] != best[accepted[-1]]:
                row = sibling[row]
            if row < 0:
                break
            accepted.append(rows[row])
        accept_index[b, : len(accepted)] = torch.tensor(accepted)
        accept_token_num[b] = len(accepted) - 1
        predicts[accepted] = torch.tensor([best[at] for at in accepted], dtype=predicts.dtype)


FUNCTIONS = {
    function.__name__: function
    for function in (
        assign_req_to_token_pool_cpu, assign_extend_cache_locs_cpu,
        assign_draft_cache_locs_contiguous_cpu, build_draft_decode_metadata_cpu,
        fill_accept_out_cache_loc_cpu, copy_all_layer_kv_cache_cpu, fill_bonus_tokens_cpu,
        rotate_input_ids_cpu, build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu,
    )
}  # fmt: skip
