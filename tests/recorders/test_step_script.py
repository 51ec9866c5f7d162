"""``draftscope_recorder.steps``: vLLM's step times as ``advise`` reads them, with a stand-in."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
from draftscope_recorder import steps

from analysis.experiments.step_times import read_step_times


class FakeCore:
    """An engine whose requests write two tokens a step; prompts are read one a step."""

    def __init__(self):
        self.left: dict[str, int] = {}
        self.written: dict[str, list[int]] = {}
        self.asked: list[list[int]] = []

    def add_request(self, name, prompt, sampling):
        self.left[name], self.asked = sampling.max_tokens, [*self.asked, prompt["prompt_token_ids"]]

    def get_num_unfinished_requests(self):
        return len(self.left)

    def step(self):
        begun = [name for name in self.left if name in self.written]
        waiting = [name for name in self.left if name not in self.written]
        outputs = []
        for name in [*begun, *waiting[:1]]:
            text = self.written.setdefault(name, [])
            text += [7] * min(2, self.left[name])
            self.left[name] -= 2
            if self.left[name] <= 0:
                del self.left[name]
            outputs.append(SimpleNamespace(
                request_id=name, outputs=[SimpleNamespace(token_ids=[*text])]
            ))  # fmt: skip
        return outputs


@pytest.fixture
def served(monkeypatch):
    """The arguments that the stand-in for vLLM was begun with, and its core."""
    told, core = {}, FakeCore()

    def engine(**options):
        told.update(options)
        tokenizer = SimpleNamespace(encode=lambda text: [len(text)])
        return SimpleNamespace(llm_engine=core, get_tokenizer=lambda: tokenizer)

    module = ModuleType("vllm")
    vars(module).update(LLM=engine, SamplingParams=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "vllm", module)
    return told, core


def call(monkeypatch, *args):
    monkeypatch.setattr(sys, "argv", ["steps", "m", *map(str, args)])
    steps.main()


def test_each_call_adds_its_lines_and_advise_reads_them(served, monkeypatch, tmp_path, capsys):
    (told, core), out = served, tmp_path / "steps.csv"
    monkeypatch.setenv("DRAFTSCOPE_RECORD", "elsewhere")
    call(monkeypatch, "--length", 0, "--batch", 1, 3, "--out", out)
    assert told == {"model": "m", "speculative_config": None, "max_num_seqs": 3}
    call(monkeypatch, "--length", 3, "--batch", 1, 3, "--out", out, "--engine", '{"dtype": "half"}',
         "--speculative-config", '{"method": "eagle3"}')  # fmt: skip
    assert told["speculative_config"] == {"method": "eagle3", "num_speculative_tokens": 3}
    assert told["dtype"] == "half"
    found = read_step_times(out)
    assert {(b, t) for (_, b), cell in found.cells.items() for t in cell} == {
        (1, 1), (3, 1), (1, 4), (3, 4),
    }  # fmt: skip
    assert capsys.readouterr().out.count("ms a step") == 4
    assert len({tuple(ids) for ids in core.asked}) > 1
    with pytest.raises(SystemExit, match="batch 3 never runs as a whole"):
        call(monkeypatch, "--length", 0, "--batch", 3, "--tokens", 2, "--out", out)


def test_steps_that_read_prompts_are_left_out(served):
    _, core = served
    found = steps.paced(core, [[1], [2], [3]], 8)
    assert not core.left and [running for running, _, _ in found] == [3, 2, 1]
    assert [new for _, _, new in found] == [6, 4, 2]


def test_a_step_s_time_is_of_whole_batches_after_a_pass_that_is_not_timed(monkeypatch):
    timed = [(2, 0.01, 2), (2, 0.03, 2), (2, 0.02, 2), (1, 5.0, 1)]
    passes = iter([[(2, 9.0, 2)], timed])
    monkeypatch.setattr(steps, "paced", lambda *asked: next(passes))
    assert list(steps.measured(None, [[1]], [2], 8)) == [(2, pytest.approx(20))]
