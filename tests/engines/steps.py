"""Run in vLLM's own environment: what the recorder adds to a step, in one process.

    DRAFTSCOPE_RECORD=FOLDER python steps.py '{"model": …, "speculative": {…}, …}' out.json

The task has prompts (token ids), batches, tokens, repeats. The same requests are served in turn
without the recorder, with tokens alone, with p, and with p and q. out.json has by batch and way
[repeats, steps, 2]: seconds of the processor, of the thread that serves and of the process.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from typing import Any

from draftscope_recorder.steps import ask
from serve import by_steps

WAYS = {"off": None, "tokens": (0, 0), "p": (10, 0), "p and q": (10, 16)}


def main() -> None:
    task = json.loads(sys.argv[1])
    core, (listener,) = by_steps(task)
    found: dict[str, Any] = {}
    for batch in task["batches"]:
        ways = found[str(batch)] = {way: [] for way in WAYS}
        texts = []
        for turn in range(task["repeats"] + 1):  # the first one warms up
            order = [*WAYS][turn % len(WAYS) :] + [*WAYS][: turn % len(WAYS)]
            for way in order:
                chosen = WAYS[way]
                listener.on = chosen is not None
                if chosen is not None:
                    listener.chosen = replace(listener.chosen, p=chosen[0], q=chosen[1])
                steps, text = served(core, task["prompts"][:batch], task["tokens"])
                texts.append(text)
                if turn:
                    ways[way].append(steps)
                settle(listener)
        assert all(text == texts[0] for text in texts), "the recorder changed a text"
    with open(sys.argv[2], "w") as file:
        json.dump(found, file)


def served(
    core: Any, prompts: list[list[int]], tokens: int
) -> tuple[list[tuple[float, float]], list[list[int]]]:
    """Seconds of every step, and the texts."""
    names = ask(core, prompts, tokens)
    steps, texts = [], dict[str, list[int]]()
    while core.has_unfinished_requests():
        thread, process = time.thread_time(), time.process_time()
        outputs = core.step()
        steps.append((time.thread_time() - thread, time.process_time() - process))
        texts |= {o.request_id: list(o.outputs[0].token_ids) for o in outputs}
    return steps, [texts[name] for name in names]


def settle(listener: Any) -> None:
    """End what is recorded, and let the writer's thread come to its end."""
    for name in [*listener.live]:
        listener.end(name)
    if listener.channel is not None:
        listener.send({"rows": []}, {})
        while not listener.channel._queue.empty():
            time.sleep(0.01)
        time.sleep(0.2)


if __name__ == "__main__":
    main()
