"""Small stand-ins for vLLM's two runners: they have the names that the recorder listens to, decode
with tables for models, and count drafts as vLLM's scheduler does. And a channel without a process.

A model is a table [V, V] of logits: row t is what follows token t.
"""

from __future__ import annotations

import io
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from draftscope_recorder import channel, writing

V = 40


class Here:
    """The channel without a process: what would go through the pipe is written at once."""

    made: Here | None = None
    ended = False

    def __init__(self, header, size, collect):
        self.collect = collect
        facts = self._through(header, {})[0]
        folder, about = Path(facts["folder"]), facts["header"]
        folder.mkdir(parents=True, exist_ok=True)
        self.writer = writing.Writer(folder, about, facts["max_mb"] << 20, "run")
        Here.made = self

    def _through(self, facts, arrays):
        pipe = io.BytesIO()
        channel.write(pipe, facts, {name: self.collect(x) for name, x in arrays.items()})
        pipe.seek(0)
        found = channel.read(pipe)
        assert found is not None
        return found

    def send(self, facts, arrays):
        self.writer.step(*self._through(facts, arrays))
        return True

    def close(self):
        self.writer.close()


def table(seed: int, like: torch.Tensor | None = None) -> torch.Tensor:
    made = 3 * torch.randn(V, V, generator=torch.Generator().manual_seed(seed))
    return made if like is None else like + 0.5 * made


@dataclass(eq=False)
class Head:
    """A drafter's model. ``kind``: "steps" asks it once a place, "block" once for all places,
    "heads" gets a list with one answer a place."""

    kind: str
    table: torch.Tensor
    calls: int = 0

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor | list[torch.Tensor]:
        self.calls += 1
        if self.kind == "heads":
            return [self.table[hidden] + d for d in range(3)]
        return self.table[hidden].clone()


@dataclass(eq=False)
class Served:
    """A request as the scheduler has it."""

    name: str
    prompt: list[int]
    most: int
    sampling: SimpleNamespace
    text: list[int] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)
    left: int = 0  # tokens of the prompt whose pass is still to come

    @property
    def done(self) -> bool:
        stop = any(t in self.sampling.stop_token_ids for t in self.text)
        return len(self.text) >= self.most or stop


def request(name: str, prompt: list[int], most: int = 24, **sampling: object) -> Served:
    known = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "max_tokens": most, "ignore_eos": False,
             "stop_token_ids": [], "extra_args": None}  # fmt: skip
    return Served(name, prompt, most, SimpleNamespace(**(known | sampling)))


class Fake:
    """The common part of both runners: the scheduler around them.

    counts    drafts, draft_tokens, accepted_tokens, as vLLM's metrics have them
    schedule  how long the drafts are that each step makes, again and again; (): ``places``
    """

    def __init__(
        self,
        kind: str = "steps",
        places: int = 3,
        temperature: float = 0.0,
        schedule: tuple[int, ...] = (),
    ):
        self.target, self.kind, self.places = table(1), kind, places
        self.lengths = itertools.cycle(schedule or (places,))
        self.q = table(2, self.target)
        self.temperature = temperature
        self.random = torch.Generator().manual_seed(7)
        self.counts = {"drafts": 0, "draft_tokens": 0, "accepted_tokens": 0}
        self.running: list[Served] = []
        self.device = torch.device("cpu")

    def config(self, rule="standard"):
        spec = SimpleNamespace(
            method=self.kind, model="drafter", num_speculative_tokens=self.places,
            rejection_sample_method=rule,
        )  # fmt: skip
        model = SimpleNamespace(
            max_model_len=512, tokenizer="", model="target", dtype="torch.float32"
        )
        return SimpleNamespace(
            speculative_config=spec, model_config=model, parallel_config=SimpleNamespace()
        )

    def serve(self, requests: list[Served], at_once: int = 3, part: int = 100) -> None:
        """Decode them all; prompts longer than ``part`` come in parts."""
        waiting, finished = list(requests), []
        while waiting or self.running or finished:
            new = waiting[: at_once - len(self.running)]
            del waiting[: len(new)]
            for each in new:
                each.left = len(each.prompt)
            self.running += new
            news = [
                SimpleNamespace(
                    req_id=r.name, prompt_token_ids=r.prompt, sampling_params=r.sampling
                )
                for r in new
            ]
            output = SimpleNamespace(
                finished_req_ids={r.name for r in finished},
                scheduled_new_reqs=news,
                total_num_scheduled_tokens=len(self.running),
                num_spec_tokens_to_schedule=next(self.lengths),
            )
            self.execute_model(output)
            finished = []
            if self.running:
                self.step(part)
                for r in self.running:
                    r.drafts = r.drafts[: output.num_spec_tokens_to_schedule]
                finished = [r for r in self.running if r.done]
                self.running = [r for r in self.running if not r.done]

    def step(self, part: int) -> None:
        rows, drafts, masked = [], [], []
        for r in self.running:
            r.left = max(0, r.left - part)
            masked.append(r.left > 0)
            last = (r.prompt + r.text)[-1]
            rows += [last, *r.drafts]
            drafts.append(len(r.drafts))
        sampled = self.sampled(torch.tensor(rows, device=self.device), drafts, masked)
        for r, out, mask, count in zip(self.running, sampled, masked, drafts, strict=True):
            if mask:
                continue
            r.text += out
            if count:
                self.counts["drafts"] += 1
                self.counts["draft_tokens"] += count
                self.counts["accepted_tokens"] += len(out) - 1
        self.draft(masked)

    def verify(self, logits: torch.Tensor, rows: torch.Tensor, drafts: list[int]) -> torch.Tensor:
        """[B, places + 1] with −1 behind the end, by the rule of vLLM for drafts without q."""
        out = torch.full((len(drafts), self.places + 1), -1, dtype=torch.int32, device=self.device)
        at = 0
        for n, count in enumerate(drafts):
            for d in range(count + 1):
                p = logits[at + d].softmax(-1)
                drafted = int(rows[at + d + 1]) if d < count else -1
                if self.temperature:
                    keep = d < count and torch.rand((), generator=self.random) < p[drafted]
                    if d < count and not keep:
                        p[drafted] = 0
                    token = drafted if keep else int(p.multinomial(1, generator=self.random))
                else:
                    token = int(p.argmax())
                out[n, d] = token
                if token != drafted:
                    break
            at += count + 1
        return out

    def drafted(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, places], asking the head as the kinds of drafters do."""
        head = self.drafter.model
        if self.kind == "heads":
            return torch.stack([x.argmax(-1) for x in head.compute_logits(hidden)], 1)
        if self.kind == "block":
            flat = head.compute_logits(hidden.repeat_interleave(self.places))
            return flat.argmax(-1).view(-1, self.places)
        found = []
        for _ in range(self.places):
            hidden = head.compute_logits(hidden).argmax(-1)
            found.append(hidden)
        return torch.stack(found, 1)


class FakeV1(Fake):
    """vllm.v1.worker.gpu_model_runner.GPUModelRunner's names."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.requests, self.input_batch = {}, SimpleNamespace(req_ids=[])
        self.discard_request_mask = SimpleNamespace(np=np.zeros(256, bool))
        self.drafter = SimpleNamespace(model=Head(self.kind, self.q))

    def execute_model(self, output):
        pass

    def sampled(self, rows, drafts, masked):
        self.input_batch.req_ids = [r.name for r in self.running]
        self.discard_request_mask.np[: len(masked)] = masked
        metadata = None
        if sum(drafts):
            at = [n for n, (row, last) in enumerate(_ends(drafts)) if not last]
            at = torch.tensor(at, device=self.device)
            metadata = SimpleNamespace(
                num_draft_tokens=drafts, target_logits_indices=at, draft_token_ids=rows[at + 1]
            )
        made = self._sample(self.target[rows], metadata)
        return [[t for t in out if t >= 0] for out in made.sampled_token_ids.tolist()]

    def _sample(self, logits, metadata):
        drafts = [0] * len(self.running) if metadata is None else metadata.num_draft_tokens
        rows = torch.full((len(logits),), -1, device=self.device)
        if metadata is not None:
            rows[metadata.target_logits_indices + 1] = metadata.draft_token_ids
        out = self.verify(logits.clone(), rows, drafts)
        if metadata is None:
            logits.fill_(0.5)  # as processors do, in place
            out = out[:, :1]
        return SimpleNamespace(sampled_token_ids=out)

    def draft(self, masked):
        for r, found in zip(self.running, self.propose_draft_token_ids().tolist(), strict=True):
            r.drafts = [] if r.left else found

    def propose_draft_token_ids(self):
        last = [(r.prompt + r.text)[-1] for r in self.running]
        return self.drafted(torch.tensor(last, device=self.device))


class FakeV2(Fake):
    """vllm.v1.worker.gpu.model_runner.GPUModelRunner's names; q of drafters that sample.

    ``adaptive``: it verifies a part of each draft, and says on the device alone which.
    """

    def __init__(self, *args, adaptive: bool = False, **more):
        super().__init__(*args, **more)
        self.adaptive = adaptive
        self.req_states = None
        self.sampler = lambda logits, batch: self._verified(logits, batch)
        self.rejection_sampler = lambda logits, batch, q, bad: self._verified(logits, batch)
        self.drafter = SimpleNamespace(model=Head(self.kind, self.q))
        self.speculator = SimpleNamespace(draft_logits=torch.zeros(64, self.places, V))
        self.states: dict[str, int] = {}

    def execute_model(self, output):
        for new in output.scheduled_new_reqs:
            self.states[new.req_id] = len(self.states)

    def sampled(self, rows, drafts, masked):
        names = [r.name for r in self.running]
        self.batch = SimpleNamespace(
            req_ids=names,
            num_draft_tokens_per_req=np.array(self.scheduled(drafts)) if sum(drafts) else None,
            cu_num_logits=torch.tensor([0, *drafts])
            .add(torch.arange(len(drafts) + 1) > 0)
            .cumsum(0),
            input_ids=rows,
            logits_indices=torch.arange(len(rows), device=self.device),
            idx_mapping_np=np.array([self.states[n] for n in names]),
        )
        self.masked = masked
        made = self.sample(self.target[rows], self.batch)
        kept = zip(made.sampled_token_ids.tolist(), made.num_sampled.tolist(), strict=True)
        return [out[:n] for out, n in kept]

    def scheduled(self, drafts: list[int]) -> list[int]:
        """Of each request, as the host knows it."""
        return [self.places if n else 0 for n in drafts] if self.adaptive else drafts

    def sample(self, logits, batch):
        if batch.num_draft_tokens_per_req is None:
            return self.sampler(logits, batch)
        return self.rejection_sampler(logits, batch, self.speculator.draft_logits, None)

    def _verified(self, logits, batch):
        drafts = (batch.cu_num_logits.diff() - 1).tolist()
        out = self.verify(logits, batch.input_ids, drafts)
        count = (out >= 0).sum(1) * ~torch.tensor(self.masked, device=self.device)
        return SimpleNamespace(sampled_token_ids=out.clamp_min(0), num_sampled=count)

    def draft(self, masked):
        hidden = torch.tensor([(r.prompt + r.text)[-1] for r in self.running])
        for r, token in zip(self.running, hidden.tolist(), strict=True):
            r.drafts = []
            for d in range(self.places):
                self.speculator.draft_logits[self.states[r.name], d] = self.q[token]
                token = int(self.q[token].argmax())
                r.drafts += [] if r.left else [token]
            if self.adaptive:
                r.drafts = r.drafts[: len(r.text) % (self.places + 1)]


def _ends(drafts):
    """(row, whether it is a request's last) for all rows."""
    return [(d, d == count) for count in drafts for d in range(count + 1)]
