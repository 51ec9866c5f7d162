"""Make the traces that ship anew, those of ``assets/traces`` and ``assets/learn``.

python -m app.maintainers.recording [NAME …]
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.command_line import CommandOptions, run, words
from app.learn import drawn, material
from app.studio import examples, shipped
from core.decoding.request import RunRequest
from core.diffusion.request import DenoiseRequest
from core.errors import UserError, as_script
from core.models.embedded import NAME
from core.rounds.round import Sampling
from core.traces.schema import Trace
from core.traces.writer import write_trace

if TYPE_CHECKING:
    from core.decoding.decode import Observation, Scene
    from core.decoding.engine import Run

Request = RunRequest | DenoiseRequest
DRAWS = material.FOLDER / drawn.FILE

RUNS = {
    "ar": ("ar", None),
    "dflash": ("dflash", 16),
    "ddtree-16": ("ddtree", 16),
    "ddtree-64": ("ddtree", 64),
    "treeflash": ("treeflash", 16),
    "dart": ("dart", 16),
    "eagle3": ("eagle3", 16),
    "hydra": ("hydra", 16),
    "mtp": ("mtp", 16),
    "medusa": ("medusa", 16),
    "sps": ("sps", 5),
    "lookahead": ("lookahead", 16),
    "pld": ("pld", 10),
    "caddtree": ("caddtree", 64),
}  # file name → method, draft budget
ONCE = ("ddtree-64", *[*RUNS][-8:])  # for their size: on the first prompt alone
TOKENS = 80
DRAFTS = {"denoise": None, "spiffy-10": "10"}  # file name → nodes of the draft graph
LENGTH = 64
ONE_ROUND = 5  # tokens: the root, and all that the round of ``GROWN`` adds
DIGITS = 3  # decimals of the log-probabilities in lists of candidates: 0.05 % of each


def recordings() -> dict[Path, Request]:
    """Return the request that each file is a run of."""
    found: dict[Path, Request] = {}
    for at, (topic, prompt) in enumerate(shipped.RECORDED.items()):
        for name, (method, budget) in RUNS.items():
            if at == 0 or name not in ONCE:
                request = RunRequest(prompt, method, budget, max_new_tokens=TOKENS)
                found[examples.TRACES / f"{topic}-{name}.jsonl.gz"] = request
    for topic, prompt in shipped.DENOISED.items():
        for name, graph in DRAFTS.items():
            path = examples.TRACES / f"{topic}-{name}.jsonl.gz"
            found[path] = DenoiseRequest(prompt, length=LENGTH, graph=graph)
    for file, (prompt, method) in material.RECORDED.items():
        found[material.FOLDER / f"{file}.jsonl.gz"] = RunRequest(
            prompt, method, material.BUDGET, max_new_tokens=material.TOKENS
        )
    found[material.FOLDER / f"{material.GROWN}.jsonl.gz"] = RunRequest(
        material.PROMPT, material.MAIN, material.MOST_NODES, max_new_tokens=ONE_ROUND
    )
    return found


def started(requests: Mapping[Path, Request]) -> Iterator[tuple[Path, Run]]:
    """The runs, one after the other; each model is loaded where the first run needs it."""
    from analysis.measures.probe import observe
    from core.decoding.engine import Engine
    from core.diffusion.models import load_diffusion
    from core.diffusion.run import start

    engine = language = None
    for path, request in requests.items():
        if isinstance(request, RunRequest):
            engine = engine or Engine()
            yield path, engine.start(request, observe)
        else:
            language = language or load_diffusion(NAME, "cpu")
            yield path, start(language, request)


def draws() -> dict[str, Any]:
    """Draws of the target after every row of one round of the course, at the temperatures and
    seeds of its sliders: of one pass, by the sampler of every run (see ``app.learn.drawn``)."""
    from analysis.measures.probe import observe
    from core.decoding.engine import Engine
    from core.verification.sampling import TargetSampler

    engine, scenes = Engine(), []

    def keep(scene: Scene) -> Observation:
        scenes.append(replace(scene, logits=scene.logits.clone()))
        return observe(scene)

    request = recordings()[material.FOLDER / f"{material.MAIN}.jsonl.gz"]
    assert isinstance(request, RunRequest)
    scene = scenes[drawn.wavering(list(engine.start(request, keep).rounds))]
    draft, logits = scene.draft, scene.logits
    log_p = logits.float().log_softmax(-1)
    places = [scene.position + depth + 1 for depth in draft.depths.tolist()]
    samplers = [
        [TargetSampler(Sampling(heat, seed=seed)) for seed in drawn.SEEDS]
        for heat in drawn.TEMPERATURES
    ]
    tokens = [[each.choose(logits, places) for each in row] for row in samplers]
    odds = [[log_p.gather(1, each[:, None]).squeeze(1) for each in row] for row in tokens]
    sums = [(log_p / (heat or 1.0)).logsumexp(-1) for heat in drawn.TEMPERATURES]
    ids = [[each.tolist() for each in row] for row in tokens]
    piece = engine.prepare().piece
    return {
        "temperatures": drawn.TEMPERATURES,
        "seeds": drawn.SEEDS,
        "rows": draft.tokens.tolist(),
        "tokens": ids,
        "log_p": [[_rounded(each.tolist(), 4) for each in row] for row in odds],
        "log_sum": [_rounded(each.tolist(), 4) for each in sums],
        "texts": {t: piece(t) for t in sorted({t for heat in ids for row in heat for t in row})},
    }


def smaller(raw: bytes) -> bytes:
    """A gzipped trace with its longest lists rounded, and packed in one piece: half the size."""
    lines = []
    for line in gzip.decompress(raw).splitlines():
        record = json.loads(line)
        for part in ("candidates", "target_top", "offers"):
            for name in {"log_q", "log_p"} & set(record.get(part) or {}):
                record[part][name] = _rounded(record[part][name])
        lines.append(json.dumps(record, separators=(",", ":")) + "\n")
    return gzip.compress("".join(lines).encode(), 9, mtime=0)


def _rounded(value: Any, digits: int = DIGITS) -> Any:
    if isinstance(value, list):
        return [_rounded(each, digits) for each in value]
    return round(value, digits) if isinstance(value, float) else value


@dataclass(frozen=True, kw_only=True)
class Options(CommandOptions):
    """Make the traces that ship anew: real runs of the embedded model with the shipped drafters.

    Every method writes the same text to the same prompt, so any of them can be compared. About five
    minutes on two idle CPU cores; the seconds in the files are of the machine that made them.
    """

    names: tuple[str, ...] = words("which of them (default: all)", ())


def main(args: Options) -> int:
    found = recordings()
    known = {path.name.partition(".")[0]: path for path in [*found, DRAWS]}
    if unknown := sorted(set(args.names) - set(known)):
        raise UserError(f"there is no recording {unknown[0]}; there are {', '.join(known)}")
    wanted = [path for name, path in known.items() if name in (args.names or known)]
    if DRAWS in wanted:
        wanted.remove(DRAWS)
        DRAWS.write_text(json.dumps(draws(), separators=(",", ":")) + "\n", "utf-8")
        print(f"{DRAWS}: {DRAWS.stat().st_size:,} bytes", flush=True)
    chosen = {path: found[path] for path in wanted}
    for path, each in started(chosen):
        trace = Trace(each.header, tuple(each), {})
        write_trace(path, trace)
        path.write_bytes(smaller(path.read_bytes()))
        print(f"{path}: {len(trace.rounds)} rounds, {path.stat().st_size:,} bytes", flush=True)
    return 0


if __name__ == "__main__":
    as_script(lambda: run(Options, main, "python -m app.maintainers.recording"))
