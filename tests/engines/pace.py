"""Run in vLLM's own environment: how fast a draft length is.

    python pace.py '{"model": …, "speculative": {…} or null, …}' out.json

The task has prompts (token ids), batches, tokens and repeats; of a batch of 1 every prompt runs
alone. out.json has by batch [repeats, steps, 3]: requests that ran, seconds of the processor of the
thread that serves, and new tokens of the step. Steps that read prompts are left out. A first pass
is not timed; it is recorded where DRAFTSCOPE_RECORD names a folder.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from draftscope_recorder.steps import paced
from serve import by_steps


def main() -> None:
    task = json.loads(sys.argv[1])
    core, heard = by_steps(task)
    prompts, found = task["prompts"], dict[str, Any]()
    for turn in range(task["repeats"] + 1):
        for batch in task["batches"]:
            parts = [prompts[at : at + batch] for at in range(0, len(prompts), batch)]
            steps = [
                step
                for part in parts
                for step in paced(core, part, task["tokens"], time.thread_time)
            ]
            if turn:
                found.setdefault(str(batch), []).append(steps)
        for listener in heard:
            listener.on = False
    with open(sys.argv[2], "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
