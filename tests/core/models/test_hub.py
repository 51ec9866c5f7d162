"""Fetching from a model hub: what a killed fetch leaves, two at once, and what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests import ROOT
from tests.helpers.fakes import make_header, make_run
from tests.helpers.hub import Hub, serving
from tests.helpers.toys_on_disk import save_toys

PRESET = "[own]\ntarget = 'toys/target'\ndrafters = { dflash = 'toys/drafter' }\n"
NEEDED = {"target": 5, "drafter": 2}  # files of each repository


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    (folder / "toys").mkdir()
    save_toys(folder / "toys")
    return folder


@pytest.fixture
def hub(repositories: Path) -> Iterator[Hub]:
    with serving(repositories) as running:
        yield running


def size(file: Path) -> int:
    return file.stat().st_size


class Machine:
    """Commands on a machine with a preset of two repositories and an empty cache."""

    def __init__(self, hub: Hub, folder: Path):
        self.home, self.preset = folder / "home", folder / "own.toml"
        self.preset.write_text(PRESET)
        own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(self.home), "HF_HUB_OFFLINE": "0"}
        own["DRAFTSCOPE_CACHE"] = str(folder / "cache")
        self._env = {**os.environ, **own, "OMP_NUM_THREADS": "1"}

    def begin(self, *words: str) -> subprocess.Popen[str]:
        return self.python("-m", "app", *words)

    def python(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *words], cwd=ROOT, env=self._env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def fetch(self) -> subprocess.Popen[str]:
        return self.begin("model", "fetch", str(self.preset))

    def said(self, *words: str) -> str:
        process = self.begin(*words)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0 and "Traceback" not in err, err
        return out

    def files(self, pattern: str) -> list[Path]:
        return sorted(self.home.glob(f"hub/models--toys--*/{pattern}"))

    def check_whole(self, repositories: Path) -> None:
        """Every file as it lies on the hub, and no part of one beside them."""
        found = self.files("snapshots/*/*")
        assert len(found) == sum(NEEDED.values())
        for file in found:
            name = file.parts[-4].rpartition("--")[2]
            assert file.read_bytes() == (repositories / "toys" / name / file.name).read_bytes()
        assert sum(size(file) for file in self.files("blobs/*")) == sum(map(size, found))


def test_a_killed_fetch_goes_on_and_keeps_what_was_whole(hub, repositories, tmp_path):
    """Killed within the target's weights, then within the drafter's."""
    machine = Machine(hub, tmp_path)
    for name in NEEDED:
        hub.hold(f"toys/{name}/model.safetensors")
        fetch = machine.fetch()
        assert hub.stalled.wait(120)
        fetch.kill()
        assert fetch.wait() == -9
        hub.let_go()
        assert machine.files("blobs/*.incomplete")
        fetch.communicate()
    said = machine.said("model", "doctor", str(machine.preset))
    assert said.count(", here") == 1 and "0 bytes to fetch" not in said
    before = {file: file.stat().st_ino for file in machine.files("snapshots/*/*")}
    hub.sent.clear()
    assert "is ready" in machine.said("model", "fetch", str(machine.preset))
    assert hub.sent == ["toys/drafter/model.safetensors"]
    assert {file: file.stat().st_ino for file in before} == before
    machine.check_whole(repositories)
    said = machine.said("model", "doctor", str(machine.preset))
    assert said.count(", here") == 2 and "0 bytes to fetch" in said


def test_two_fetches_at_once_fetch_each_file_once(hub, repositories, tmp_path):
    machine = Machine(hub, tmp_path)
    hub.hold("toys/target/model.safetensors")
    both = [machine.fetch() for _ in range(2)]
    assert hub.stalled.wait(120)
    hub.let_go()
    for fetch in both:
        out, err = fetch.communicate(timeout=300)
        assert fetch.returncode == 0 and "is ready" in out, err
    assert len(hub.sent) == len(set(hub.sent)) == sum(NEEDED.values())
    machine.check_whole(repositories)


def test_a_run_fetches_what_it_needs_and_the_next_asks_for_nothing(hub, tmp_path):
    machine = Machine(hub, tmp_path)
    words = ("run", "ddtree", "--prompt", "Hi", "--model", str(machine.preset), "--device", "cpu",
             "--max-new-tokens", "4", "--temperature", "0")  # fmt: skip
    first = machine.said(*words)
    assert len(hub.sent) == sum(NEEDED.values())
    second = machine.said(*words)
    assert len(hub.sent) == sum(NEEDED.values())
    assert first.splitlines()[0] == second.splitlines()[0]


def test_doctor_says_how_a_repository_opens_before_its_weights_are_fetched(hub, tmp_path):
    machine = Machine(hub, tmp_path)
    for name, words in (("target", "opens as a target"), ("drafter", "a drafter: dflash")):
        said = machine.said("model", "doctor", f"toys/{name}")
        assert words in said and "memory" in said and "0 bytes to fetch" not in said
    assert hub.sent and not [name for name in hub.sent if name.endswith(".safetensors")]


def test_a_repository_that_is_not_there_is_one_sentence(hub, tmp_path):
    machine = Machine(hub, tmp_path)
    machine.preset.write_text("[own]\ntarget = 'toys/nothing'\n")
    fetch = machine.fetch()
    out, err = fetch.communicate(timeout=300)
    last = err.splitlines()[-1]
    assert fetch.returncode == 2 and not out and "toys/nothing" in last and len(last) < 300


def test_traces_on_the_hub_are_read_as_a_folder_and_copied_once(tmp_path):
    repository = tmp_path / "repositories" / "org" / "traces"
    repository.mkdir(parents=True)
    for number in range(2):
        run = Trace(make_header(f"why {number}?"), tuple(make_run(3)), {})
        write_trace(repository / f"{number}.jsonl", run)
    with serving(tmp_path / "repositories") as hub:
        machine = Machine(hub, tmp_path)
        found = [machine.said("report", "hf://org/traces") for _ in range(2)]
        assert sorted(hub.sent) == ["org/traces/0.jsonl", "org/traces/1.jsonl"]
    assert found == [machine.said("report", str(repository))] * 2


TELLING = """
from core.models.hub import SMALL_FILES, WEIGHTS, Source
def tell(done, what):
    print(f"{what}|{done}\\n", end="")
Source("toys/target").fetch((*SMALL_FILES, *WEIGHTS), tell)
"""


def test_a_fetch_says_how_much_has_come(hub, repositories, tmp_path):
    """Of what is missing, growing, to its end; of a cache that has it all, nothing."""
    machine = Machine(hub, tmp_path)
    hub.hold("toys/target/model.safetensors")
    fetch = machine.python("-c", TELLING)
    assert hub.stalled.wait(120)
    hub.let_go()
    out, err = fetch.communicate(timeout=300)
    assert fetch.returncode == 0, err
    told = [line.split("|") for line in out.splitlines()]
    assert {stage for stage, _ in told} == {"fetching toys/target"}
    shares = [float(share) for _, share in told if share != "None"]
    assert shares == sorted(shares) and shares[-1] == 1.0 and len(shares) >= 2
    again, err = machine.python("-c", TELLING).communicate(timeout=300)
    assert again == "", err
