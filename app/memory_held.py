"""The memory of a process with the embedded target ready on the CPU, and of a run at most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from analysis.numbers import size
from core.decoding.request import RunRequest
from core.memory import peak, release, resident, restart_peak
from core.methods.names import DEFAULT

if TYPE_CHECKING:
    from torch import nn

    from core.decoding.engine import Engine

PROMPT, TOKENS = "Name three fruits.", 8
SMALL, LARGE = 64, 1024  # draft budgets
CONTEXT = 256  # tokens of prompt and text that the computed figure allows for
FLOAT = 4  # bytes


def lines() -> Iterator[str]:
    """Yield its lines for people. Loads the model. Raises UserError where it cannot be loaded."""
    from core.decoding.engine import Engine

    engine = Engine(device="cpu")
    if resident() is None:
        engine.prepare()
        yield "this system does not say how much memory a process has"
        return
    libraries = _resident()  # Python with torch and numba
    network = engine.prepare().model
    with_target = _resident()
    engine.method(DEFAULT)
    whole = _resident()
    packed, per_token = weight_bytes(network), token_bytes(network.config)
    yield f"{size(whole)} with the model ready, measured in this process:"
    yield f"    libraries {size(libraries)}; the studio's own come on top"
    yield (
        f"    target {size(with_target - libraries)}: its weights in float32, packed for this CPU, "
        f"{size(packed)}; the embedding stays in its file"
    )
    drafter = size(whole - with_target)
    yield f"    drafter of {DEFAULT} {drafter}; the last six that were used are kept"
    yield f"    cache {size(per_token)} a token, computed; allocated by the first run"
    for budget in (SMALL, LARGE):
        more, how = measured(engine) if budget == SMALL else None, "measured"
        if more is None:
            more, how = computed(engine, budget), "computed"
        yield (
            f"a run of {DEFAULT} at B = {budget:,}: {size(more)} more at most, "
            f"{size(whole + more)} in all, {how}"
        )


def measured(engine: Engine) -> int | None:
    """The bytes that a run at B = 64 takes at most beyond what is held, with probes on; None where
    the system keeps no peak."""
    from analysis.measures.probe import observe

    before = _resident()
    if not restart_peak():
        return None
    for _ in engine.start(RunRequest(PROMPT, DEFAULT, SMALL, TOKENS), observe).rounds:
        pass
    return max(0, (peak() or before) - before)


def computed(engine: Engine, budget: int) -> int:
    """The same from the shapes: the cache, the logits of every row, what one layer and its features
    take, and the probe's slabs (scores, their exponentials and a temporary)."""
    from analysis.measures.probe import SLAB

    network, layers = engine.prepare().model, engine.target(engine.method(DEFAULT)).layers
    config, rows = network.config.get_text_config(), budget + 1
    cache = (CONTEXT + rows) * token_bytes(config)
    logits = rows * config.vocab_size
    layer = rows * (4 * config.intermediate_size + 4 * config.hidden_size)
    features = 2 * rows * len(layers) * config.hidden_size
    probe = 3 * min(rows, SLAB) * config.vocab_size
    return cache + FLOAT * (logits + layer + features + probe)


def token_bytes(config: Any) -> int:
    """Keys and values of a token in all layers, in float32."""
    text = config.get_text_config()
    return 2 * text.num_hidden_layers * text.num_key_value_heads * text.head_dim * FLOAT


def weight_bytes(network: nn.Module) -> int:
    """Bytes of all layers, packed ones included."""
    packed = sum(getattr(module, "nbytes", 0) for module in network.modules())
    return packed + sum(p.nbytes for p in network.parameters())


def _resident() -> int:
    release()
    return resident() or 0
