"""The script for a machine with a GPU runs without what such a machine lacks, and resumes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial

import pytest
import torch

from core.errors import UserError
from tests import ROOT
from tests.cuda.__main__ import main
from tests.helpers.timing import amount
from tests.helpers.toys_on_disk import save_toys

LACKING = ("gradio", "plotly", "graphviz", "gguf", "orjson", "ray", "playwright")
BLOCKER = f"""
import sys

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {LACKING!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Lacking())
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu")
    target, drafter = save_toys(folder)
    prompts = [{"prompt": f"Say {i} words."} for i in range(34)]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, prompts)))
    (folder / "held-out.jsonl").write_text(json.dumps({"prompt": "Which of us is new?"}) + "\n")
    (folder / "sitecustomize.py").write_text(BLOCKER)
    return folder, [
        "--model", str(target), "--drafter", str(drafter), "--device", "cpu", "--quick",
        "--prompts", str(folder / "prompts.jsonl"), "--held-out", str(folder / "held-out.jsonl"),
        "--synthesise", "0", "--tasks", "0", "--hours", "0.0005",
    ]  # fmt: skip


def script(folder, *words):
    """Run it as that machine would: (exit code, what it printed)."""
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.cuda", str(folder / "work"), *words],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.fixture
def here(place, monkeypatch, capsys):
    """Run it in this process, its steps as that machine would: the same two."""
    folder, _ = place
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.chdir(ROOT)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["tests.cuda", str(folder / "work"), *words])
        return main(), capsys.readouterr().out

    return run


def test_the_blocker_blocks(place):
    folder, _ = place
    for name in LACKING:
        code, out = subprocess.getstatusoutput(
            f"cd {ROOT} && PYTHONPATH={folder} {sys.executable} -c 'import {name}'"
        )
        assert code and "No module named" in out


def test_its_steps_run_there_and_are_not_done_twice(place, here):
    folder, words = place
    steps = ("speed", "train-dflash", "ship", "checks", "audit", "bench")[: amount(3, 6)]
    only = ["--only", *steps]
    # what it imports itself, its steps import as well
    first = partial(script, folder) if amount(0, 1) else here
    code, out = first(*words, *only)
    assert code == 0, out
    made = {p.relative_to(folder / "work").as_posix() for p in (folder / "work").rglob("*")}
    assert {"better/dflash/model.safetensors", "ship.json", *(f"{s}.log" for s in steps)} <= made
    speed = (folder / "work" / "speed.log").read_text()
    assert "verify: nodes" in speed and "round: nodes" in speed and "8 layers" in speed
    assert "floor ms" in out
    code, again = here(*words, *only)
    assert code == 0 and "──" not in again and again.count("done") == len(steps)


def test_a_failed_step_is_said_and_the_rest_runs(place, here):
    words = [*place[1], "--only", "train-dflash", "checks"]
    words[words.index("--hours") + 1] = "-1"
    code, out = here(*words)
    assert code == 1 and "train-dflash     failed" in out and "checks           done" in out
    assert "Traceback" not in out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_nothing_is_called_checked(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["tests.cuda", str(tmp_path)])
    with pytest.raises(UserError, match="no CUDA device"):
        main()


def test_training_without_held_out_prompts_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["tests.cuda", str(tmp_path), "--prompts", "x.jsonl"])
    with pytest.raises(UserError, match="--held-out"):
        main()
