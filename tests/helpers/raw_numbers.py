"""The tables' numbers once more, from a trace's raw JSON lines: slow, plain, no shared code."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from pathlib import Path


def raw_rounds(path: Path) -> list[dict]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines[1:] if line["kind"] == "round" and line["committed"]]


def tau(rounds: list[dict]) -> float:
    return sum(len(r["path"]) for r in rounds) / len(rounds)


def chain_of(nodes: dict, row: int) -> list[int]:
    found = []
    while row > 0:
        found.insert(0, row)
        row = nodes["parents"][row]
    return found


def path_q(nodes: dict, row: int) -> float:
    return math.prod(math.exp(nodes["log_q"][r]) for r in chain_of(nodes, row))


def by_depth(rounds: list[dict]) -> dict[int, Counter]:
    """depth → observed, tested, accepted, rounds, and sums of TVD and coverage."""
    found: dict[int, Counter] = defaultdict(Counter)
    for r in rounds:
        nodes, walked = r["nodes"], r["path"]
        for depth in range(1, len(r["candidates"]["token"]) + 1):
            found[depth]["rounds"] += 1
            found[depth]["nodes"] += nodes["depth"].count(depth)
            if depth > len(walked):
                continue  # its parent was not accepted
            found[depth]["observed"] += 1
            found[depth]["tested"] += walked[depth - 1] in nodes["parents"]
            found[depth]["accepted"] += depth < len(walked)
            found[depth]["tvd"] += r["probe"]["tvd"][depth - 1]
            for k in range(16):
                found[depth][f"coverage_{k + 1}"] += r["probe"]["coverage"][depth - 1][k]
    return {d: c for d, c in found.items() if c["observed"]}


def offered_after(r: dict, row: int) -> list[int] | None:
    if "offers" in r:
        at = r["offers"]["after"][row]
        return r["offers"]["token"][at] if at >= 0 else None
    depth = r["nodes"]["depth"][row]
    lists = r["candidates"]["token"]
    return lists[depth] if depth < len(lists) else None


def reliability(pairs: list[tuple[float, bool]], edges: list[float]) -> dict[int, tuple]:
    """bin → (nodes, mean q, accepted), bins [low, high) and the last one closed."""
    found = defaultdict(list)
    for chance, hit in pairs:
        place = max(i for i in range(len(edges) - 1) if chance >= edges[i])
        found[place].append((chance, hit))
    return {
        b: (len(some), sum(c for c, _ in some) / len(some), sum(h for _, h in some))
        for b, some in found.items()
    }


def ece(bins: dict[int, tuple]) -> float:
    total = sum(n for n, _, _ in bins.values())
    return sum(n / total * abs(hits / n - mean) for n, mean, hits in bins.values())


def first_mismatch(r: dict) -> tuple[int | None, bool] | None:
    """(rank of the target's token, whether it was drafted) where it first was not the best."""
    ranks = r["nodes"]["rank"]
    for row in r["path"][1:]:
        if ranks[row] != 1:
            return ranks[row], True
    if len(r["path"]) > len(r["candidates"]["token"]):
        return None
    offered = offered_after(r, r["path"][-1]) or []
    if r["bonus"] in offered:
        rank = offered.index(r["bonus"]) + 1
        return None if rank == 1 else (rank, False)
    return r["probe"]["rank_q"][len(r["path"]) - 1], False


def next_to_siblings(rounds: list[dict]) -> dict[str, list[bool]]:
    """context → whether the next token was accepted, at depth ≥ 2."""
    found = defaultdict(list)
    for r in rounds:
        ranks = [r["nodes"]["rank"][row] for row in r["path"][1:]]
        for depth in range(2, min(len(r["path"]), len(r["candidates"]["token"])) + 1):
            above = ranks[: depth - 1]
            if above[-1] != 1:
                context = "after another token"
            elif all(rank == 1 for rank in above):
                context = "along the spine"
            else:
                context = "further behind one"
            found[context].append(depth < len(r["path"]))
    return found
