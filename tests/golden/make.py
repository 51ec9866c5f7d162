"""Make the golden traces anew: python -m tests.golden.make FOLDER (from the repository root).

Only for a *new* format version, or a new file for new fields: existing files never change.

trace-v1        a toy run with everything that the first version held
trace-v1-paths  handmade rounds with the fields that came later: offers, notes, side rows, drawn
                tokens, and lists of a drafter that conditions on the path
plain           what plain decoding of the toys writes: guesses, which make tests faster
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from analysis.measures.probe import observe
from core.traces.schema import Header, Trace
from core.traces.writer import write_trace
from tests.helpers import toys
from tests.helpers.small_rounds import small_trace


def golden_trace() -> Trace:
    """A short toy run; stage times are literal."""
    text = toys.PROMPT + toys.plain(60, toys.SAMPLED)
    found = toys.run(
        toys.tree(toys.NoisyOracle(text, max_depth=3)), 9, toys.SAMPLED, 6, observe=observe
    )
    header = Header(
        method="ddtree",
        settings={"budget": 6, "max_new_tokens": 9, "sampling": {"temperature": 0.9, "seed": 11}},
        model={"name": "toy-llama", "revision": "0"},
        drafter={"kind": "NoisyOracle", "depths": 3},
        prompt_text="a toy's prompt",
        prompt_ids=toys.PROMPT,
        seed=11,
        tokenizer_hash="0123456789abcdef",
        dtype="float64",
        device="cpu",
        created="2026-01-02T03:04:05+00:00",
        creator={"name": "draftscope", "version": "0.1.0"},
        libraries={"torch": "2.13.0"},
    )
    return Trace(header, tuple(toys.as_logged(r, i) for i, r in enumerate(found.rounds)), {})


def plain_texts() -> dict[str, list[int]]:
    return {
        f"{family} {name}": list(toys.plain(224, rule, family=family))
        for family in toys.FAMILIES
        for name, rule in toys.RULES.items()
    }


if __name__ == "__main__":
    rows = (f"{json.dumps(name)}: {json.dumps(text)}" for name, text in plain_texts().items())
    (Path(sys.argv[1]) / "plain.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")
    write_trace(Path(sys.argv[1]) / "trace-v1.jsonl", golden_trace())
    write_trace(Path(sys.argv[1]) / "trace-v1-paths.jsonl", small_trace())
