"""A small stand-in for SGLang: the functions that the recorder listens to under their own names and
signatures, EAGLE-2's drafts from tables for models, and a server's loop around them.

A model is a table of logits, as in ``recorder_fakes``. Shapes: b requests, k beams, N rows of
a draft, ``steps`` depths.
"""

from __future__ import annotations

import functools
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType, SimpleNamespace

import torch

from tests.helpers.recorder_fakes import table

ROOT = "sglang.srt"
ANY_K = 1 << 30  # top_k of a request that sets none


class HookType(Enum):
    AROUND = "around"


@dataclass(eq=False)
class Req:
    """A request as the scheduler has it; ``most`` counts the token that prefill gives."""

    rid: str
    origin_input_ids: list[int]
    sampling_params: SimpleNamespace
    output_ids: list[int] = field(default_factory=list)
    multimodal_inputs: object = None
    eos_token_ids: set[int] | None = None
    tokenizer: object = None

    def finished(self) -> bool:
        chosen = self.sampling_params
        stops = set(chosen.stop_token_ids or ())
        stops |= set() if chosen.ignore_eos else (self.eos_token_ids or set())
        at = next((n for n, t in enumerate(self.output_ids, 1) if t in stops), 1 << 30)
        most = min(at, chosen.max_new_tokens)
        self.served = self.output_ids[:most]
        return len(self.output_ids) >= most


def request(rid: str, prompt: list[int], most: int = 24, **sampling: object) -> Req:
    known = {"temperature": 1.0, "top_k": 1, "top_p": 1.0, "max_new_tokens": most,
             "ignore_eos": False, "stop_token_ids": None, "custom_params": None}  # fmt: skip
    return Req(rid, prompt, SimpleNamespace(**(known | sampling)))


# ── SGLang's functions ───────────────────────────────────────────────────────────────────────────


def organize_draft_results(score_list, token_list, parents_list, num_draft_token):
    scores = torch.cat(score_list, 1).flatten(1)
    best = scores.topk(num_draft_token - 1, -1).indices.sort().values
    tokens = torch.cat(token_list, 1).gather(1, best)
    whole = len(parents_list) > 1
    beams = torch.cat(parents_list[:-1], 1) if whole else parents_list[0].new_empty(len(best), 0)
    return beams, best, tokens


def build_tree_kernel_efficient(
    bonus_tokens, parent_list, top_scores_index, draft_tokens, seq_lens, seq_lens_sum, topk,
    spec_steps, num_verify_tokens,
):  # fmt: skip
    size, count = len(seq_lens), num_verify_tokens
    index = torch.arange(size * count).view(size, count)
    child, sibling = torch.full((size, count), -1), torch.full((size, count), -1)
    positions = torch.zeros(size, count, dtype=torch.long)
    for b in range(size):
        chosen, depths = top_scores_index[b].tolist(), [0]
        for row, candidate in enumerate(chosen, 1):
            at = candidate // topk
            parent = 0 if at == 0 else chosen.index(int(parent_list[b, at])) + 1
            depths.append(depths[parent] + 1)
            sibling[b, row], child[b, parent] = child[b, parent].item(), row
        positions[b] = seq_lens[b] + torch.tensor(depths)
    drafted = torch.cat([bonus_tokens[:, None], draft_tokens], 1).flatten()
    return None, positions.flatten(), index, child, sibling, drafted


def eagle_sample(verify_input, batch, logits_output, grammar_mask=None, *, watermark_state=None):
    """Walks each tree by the target's rule, then leaves the logits changed."""
    size, width = len(batch.reqs), verify_input.draft_token_num
    logits = logits_output.next_token_logits
    predict = torch.zeros(size * width, dtype=torch.int32)
    index = torch.full((size, verify_input.spec_steps + 1), -1, dtype=torch.int32)
    lengths = torch.zeros(size, dtype=torch.int32)
    drafted = verify_input.draft_token.view(size, width)
    for b, req in enumerate(batch.reqs):
        row, depth = 0, 0
        while True:
            index[b, depth] = b * width + row
            p = logits[b * width + row].softmax(-1)
            if req.sampling_params.top_k == 1:
                wanted, p = int(p.argmax()), None
            child = int(verify_input.retrieve_next_token[b, row])
            while child >= 0:
                token = int(drafted[b, child])
                if token == wanted if p is None else _taken(p, token, batch.random):
                    break
                child = int(verify_input.retrieve_next_sibling[b, child])
            if child < 0:
                final = wanted if p is None else int(p.multinomial(1, generator=batch.random))
                predict[b * width + row] = final
                break
            predict[b * width + row] = drafted[b, child]
            row, depth = child, depth + 1
        lengths[b] = depth + 1
    logits.fill_(0.5)
    return predict, lengths, index


def _taken(p: torch.Tensor, token: int, random: torch.Generator) -> bool:
    """Whether a sibling is taken; a refused one leaves p."""
    if float(torch.rand((), generator=random)) * float(p.sum()) < float(p[token]):
        return True
    p[token] = 0
    return False


# ── the server ───────────────────────────────────────────────────────────────────────────────────


class FakeSGLang:
    """A server whose modules stand in ``sys.modules`` while ``installed``.

    ahead   the next step is verified before the result of the last one is looked at
    counts  drafted and accepted tokens of what was served
    """

    def __init__(self, k: int = 3, steps: int = 3, width: int = 9, ahead: bool = False):
        self.k, self.steps, self.width, self.ahead = k, steps, width, ahead
        self.target = table(1)
        self.q = table(2, self.target)
        self.random = torch.Generator().manual_seed(7)
        self.retract_at: int | None = None
        self.settings = SimpleNamespace(
            model_path="target", tokenizer_path="", speculative_algorithm="EAGLE3",
            speculative_draft_model_path="drafter", speculative_num_steps=steps,
            speculative_eagle_topk=k,
        )  # fmt: skip

    def install(self, monkeypatch) -> None:
        """Put SGLang's modules where the recorder looks for them."""

        class Scheduler:
            def process_batch_result(self, batch, result):
                return fake.served(batch, result)

        fake = self
        places = {
            f"{ROOT}.speculative.eagle_utils": [
                organize_draft_results, build_tree_kernel_efficient, eagle_sample],
            f"{ROOT}.managers.scheduler": [Scheduler],
            f"{ROOT}.runtime_context": [self.get_server_args],
            f"{ROOT}.plugins.hook_registry": [type("HookRegistry", (), {
                "register": staticmethod(self.register)}), HookType],
        }  # fmt: skip
        for path in {"sglang", ROOT, *places, *(x.rpartition(".")[0] for x in places)}:
            made = ModuleType(path)
            for each in places.get(path, ()):
                setattr(made, each.__name__, each)
            monkeypatch.setitem(sys.modules, path, made)
        self.utils = sys.modules[f"{ROOT}.speculative.eagle_utils"]
        self.scheduler = Scheduler()

    def get_server_args(self):
        return self.settings

    def register(self, name: str, hook: Callable, kind: HookType) -> None:
        """As SGLang's registry: the hook is called with the original and its arguments."""
        assert kind is HookType.AROUND
        path, _, last = name.rpartition(".")
        place = pkgutil.resolve_name(path)
        own = getattr(place, last)

        @functools.wraps(own)
        def heard(*args, **more):
            return hook(own, *args, **more)

        setattr(place, last, heard)

    def served(self, batch, result) -> None:
        for req, out in zip(batch.reqs, result, strict=True):
            if not req.finished():
                req.output_ids += out

    def serve(self, requests: list[Req], at_once: int = 3) -> None:
        waiting, running, behind, steps = list(requests), [], None, 0
        texts: dict[str, list[int]] = {}
        while waiting or running or behind:
            while waiting and len(running) < at_once:
                req = waiting.pop(0)
                texts[req.rid] = [self.first(req, req.origin_input_ids[-1])]
                req.output_ids += texts[req.rid]
                running.append(req)
            batch = result = None
            if running:
                steps += 1
                if steps == self.retract_at:  # the first request is computed again
                    rid = running[0].rid
                    texts[rid].append(self.first(running[0], texts[rid][-1]))
                batch, result = self.step(running, texts)
            now = behind if self.ahead else (batch, result)
            behind = (batch, result) if self.ahead and batch else None
            if now:
                self.scheduler.process_batch_result(*now)
            running = [req for req in running if not req.finished()]

    def first(self, req: Req, last: int) -> int:
        return int(self.target[last].argmax())

    def step(self, running: list[Req], texts: dict[str, list[int]]):
        roots = torch.tensor([texts[r.rid][-1] for r in running])
        # the last token's own keys are not written yet
        lengths = torch.tensor([len(r.origin_input_ids) + len(texts[r.rid]) - 1 for r in running])
        beams, best, tokens = self.draft(roots)
        made = self.utils.build_tree_kernel_efficient(
            roots, beams, best, tokens, lengths, 0, self.k, self.steps, self.width
        )
        tree = SimpleNamespace(
            positions=made[1], retrieve_index=made[2], retrieve_next_token=made[3],
            retrieve_next_sibling=made[4], draft_token=made[5], draft_token_num=self.width,
            spec_steps=self.steps, topk=self.k,
        )  # fmt: skip
        batch = SimpleNamespace(
            reqs=list(running), forward_mode=SimpleNamespace(is_idle=lambda: False),
            random=self.random, device=torch.device("cpu"),
            model_config=SimpleNamespace(model_path="target", dtype=torch.float32),
        )  # fmt: skip
        logits = SimpleNamespace(next_token_logits=self.target[made[5]].clone())
        predict, lengths, index = self.utils.eagle_sample(tree, batch, logits, None)
        result = [predict[index[n, : lengths[n]].long()].tolist() for n in range(len(running))]
        for req, out in zip(running, result, strict=True):
            texts[req.rid] += out
        return batch, result

    def draft(self, roots: torch.Tensor):
        """EAGLE-2's beams; ``organize_draft_results`` chooses of all candidates."""
        return self.utils.organize_draft_results(*self.candidates(roots), self.width)

    def candidates(self, roots: torch.Tensor):
        size, k = len(roots), self.k
        q = self.q.softmax(-1)
        p, ids = q[roots].topk(k)
        scores, tokens = [p[:, None]], [ids]
        parents = [torch.arange(-1, k).expand(size, -1)]
        beam = p
        for step in range(1, self.steps):
            p, next_ids = q[ids].topk(k)  # [b, k, k]
            paths = beam[..., None] * p
            scores.append(paths)
            tokens.append(next_ids.flatten(1))
            beam, at = paths.flatten(1).topk(k)
            parents.append(at + k * k * (step - 1) + k)
            ids = next_ids.flatten(1).gather(1, at)
        return scores, tokens, parents
