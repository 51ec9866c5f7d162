"""Conversations of several turns, run by ``grid`` and ``run``: a turn follows the answer to the one
before."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from analysis.experiments.prompts import Prompt
from analysis.experiments.sweep import Plan, Terms, scores
from analysis.experiments.sweep_folder import Folder
from analysis.experiments.variants import Variant
from analysis.measures.tables import Tables
from app import cli, sweep_runner
from core.chat import chat_of
from core.traces.reader import read_trace
from tests.helpers.sentences import is_one_sentence
from tests.helpers.small_traces import made
from tests.helpers.toys_on_disk import save_toys

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
ROWS = [{"turns": ["one", "two", "three"], "category": "talk"}, {"prompt": "alone"}]
TOKENS = 6


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Toys on disk whose target has a chat template, and a file of two prompts."""
    folder = tmp_path_factory.mktemp("toys")
    target, _ = save_toys(folder)
    (target / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return folder


def words(toys: Path, *command: object) -> list[str]:
    shared = ("--model", toys / "target", "--drafter", toys / "drafter", "--device", "cpu",
              "--prompts", toys / "prompts.jsonl", "--max-new-tokens", TOKENS)  # fmt: skip
    return [str(word) for word in (*command, *shared)]


def grid(toys: Path, out: Path, *more: object, methods: tuple[str, ...] = ("ar", "ddtree")):
    named = ("grid", "run", *methods, "--budget", 4, "--temperature", 1, "--seed", 0, 1)
    return words(toys, *named, "--out", out, *more)


@pytest.fixture(scope="module")
def whole(toys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "grid"
    assert cli.main(grid(toys, out)) == 0
    return out


def table(out: Path) -> pd.DataFrame:
    return pd.read_parquet(out / "results.parquet")


def test_every_turn_follows_the_first_method_s_answers(whole: Path):
    found = table(whole)
    assert len(found) == 2 * 2 * 4 and set(found["turn"]) == {1, 2, 3}
    for _, own in found.groupby(["seed", "method"]):
        talk = own[own["prompt"] == 0].sort_values("turn")
        plain = found[(found["method"] == "ar") & (found["seed"] == own["seed"].iloc[0])]
        plain = plain[plain["prompt"] == 0].sort_values("turn")
        answers = plain["text"].tolist()
        assert talk["prompt_text"].iloc[0] == "one"
        last = chat_of(talk["prompt_text"].iloc[2])
        assert last.contents == ["one", answers[0], "two", answers[1], "three"]
        assert [m["role"] for m in last.messages] == ["user", "assistant"] * 2 + ["user"]
        assert talk["prompt_text"].tolist() == plain["prompt_text"].tolist()
        assert set(talk["source"]) == {"talk"} and talk["conversation"].nunique() == 1
    assert found["conversation"].nunique() == 2
    for line in found.itertuples():
        trace = read_trace(whole / "traces" / str(line.trace))
        assert trace.header.prompt_text == line.prompt_text
        assert trace.footer is not None and trace.footer["text"] == line.text


def test_a_lost_answer_is_made_again_and_the_turns_behind_it_stay(call, toys, whole):
    before = table(whole)
    first = before[(before["turn"] == 1) & (before["method"] == "ar") & (before["prompt"] == 0)]
    (whole / "traces" / first["trace"].iloc[0]).unlink()
    kept = {path: path.stat().st_ino for path in (whole / "traces").iterdir()}
    code, _, err = call(*grid(toys, whole))
    assert code == 0 and "11 of 16 runs are there already" in err  # those behind it are not known
    assert all(path.stat().st_ino == inode for path, inode in kept.items())
    after = table(whole)
    assert after["prompt_text"].tolist() == before["prompt_text"].tolist()
    assert after["text"].tolist() == before["text"].tolist()


def test_more_turns_extend_a_grid_and_fewer_are_another(call, toys, tmp_path):
    out = tmp_path / "grid"
    assert call(*grid(toys, out, "--turns", 1))[0] == 0
    assert set(table(out)["turn"]) == {1}
    assert call(*grid(toys, out, "--turns", 2))[0] == 0
    assert table(out)["turn"].tolist().count(2) == 4
    code, _, err = call(*grid(toys, out, "--turns", 1))
    assert code == 2 and "1 of its turns are not in this one" in err and is_one_sentence(err)
    code, _, err = call(*grid(toys, out, "--turns", 2, methods=("ddtree", "ar")))
    assert code == 2 and "or follow another method" in err


def test_turns_behind_a_failed_one_wait(call, toys, tmp_path, monkeypatch):
    out, real = tmp_path / "grid", sweep_runner.decode_prompt

    def failing(job, prompt, *more):
        if prompt == "one" and job.request.method == "ar" and job.trace is not None:
            raise RuntimeError("no room")
        return real(job, prompt, *more)

    monkeypatch.setattr(sweep_runner, "decode_prompt", failing)
    code, _, err = call(*grid(toys, out))
    assert code == 1 and "6 of 16 runs are done, 2 failed" in err
    monkeypatch.undo()
    assert call(*grid(toys, out))[0] == 0 and len(table(out)) == 16


def test_what_is_left_to_do_is_known_before_the_answers(tmp_path):
    (tmp_path / "traces").mkdir()
    prompts = (Prompt("a", more=("b", "c")), Prompt("d"))
    plan = Plan(Terms("m"), (Variant("plain", "ar"), Variant("x", "ddtree", 4)), prompts, (0, 1, 2))
    folder = Folder(tmp_path, plan)
    assert folder.size == 2 * 3 * 4 and len(folder.remaining()) == 2 * 3 * 2


def test_the_turns_of_a_conversation_are_drawn_together():
    prompts = tuple(Prompt(str(n), more=("b",)) for n in range(3))
    plan = Plan(Terms("m"), (Variant("plain", "ar"),), prompts)
    jobs = plan.jobs(lambda job: "answer" + job.prompt.text)
    assert [job.turn for job in jobs] == [1, 2] * 3
    rows = [
        {"method": "ar", "budget": job.variant.budget, "options": "{}",
         "prompt_hash": job.prompt_hash, "conversation": job.conversation, "seed": 0, "tokens": 4,
         "seconds": 1.0, "error": None, "acceptance_lengths": [1, job.turn],
         "same_as_plain": None, "temperature": 0.0}
        for job in jobs
    ]  # fmt: skip
    (found,) = scores(plan, rows)
    assert found.texts == 6 and found.low != found.low  # of three conversations
    (apart,) = scores(plan, [row | {"conversation": None} for row in rows])
    assert apart.texts == 6 and apart.low < found.tau < apart.high


def test_a_report_draws_the_turns_of_a_conversation_together():
    later = Prompt("tell me", more=("more",)).answered("well").text
    traces = {str(n): made(4, 4) for n in range(3)}
    texts = ("tell me", later, "other")
    for trace, text in zip(traces.values(), texts, strict=True):
        object.__setattr__(trace.header, "prompt_text", text)
    numbers = Tables.of(traces).prompt_numbers.tolist()
    assert numbers[0] == numbers[1] != numbers[2]


def test_run_goes_on_with_its_own_answers(call, toys, tmp_path):
    code, out, err = call(*words(toys, "run", "ddtree", "--json", "--trace", tmp_path / "t.jsonl"))
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and len(found) == 4 and "4 prompts" in err
    assert chat_of(found[1]["prompt"]).contents == ["one", found[0]["text"], "two"]
    assert chat_of(found[2]["prompt"]).contents[3:] == [found[1]["text"], "three"]
    assert read_trace(tmp_path / "t-4.jsonl").header.prompt_text == found[3]["prompt"] == "alone"


def test_turns_behind_one_that_fails_are_left_out_of_a_run(call, toys, tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(map(json.dumps, [{"turns": ["x" * 5000, "two"]}, ROWS[1]])))
    trace = tmp_path / "t.jsonl"
    shared = [word if word != str(toys / "prompts.jsonl") else str(path) for word in words(toys)]
    code, out, err = call("run", "ddtree", "--json", "--trace", trace, *shared)
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 2 and "2 of 3 prompts could not be decoded" in err
    assert "error" in found[0] and found[1]["prompt"] == "alone"
    assert [p.name for p in sorted(tmp_path.glob("t-*"))] == ["t-3.jsonl"]


def test_a_target_without_a_template_is_asked_first_turns_alone(call, toys, tmp_path):
    save_toys(tmp_path)
    bare = [str(tmp_path / "target") if w == str(toys / "target") else w for w in words(toys)]
    out = ("--out", tmp_path / "out")
    for command in (("run", "ddtree"), ("grid", "run", "ar", *out), ("grid", "table", "ar", *out)):
        code, _, err = call(*command, *bare)
        assert code == 2 and is_one_sentence(err) and "--turns 1" in err
    assert call("run", "ddtree", *bare, "--turns", 1)[0] == 0


def test_the_table_has_a_text_for_every_turn(call, toys, tmp_path):
    out = ("--out", tmp_path, "--budget", 4, "--time-every", 2, "--temperature", 0)
    assert call(*words(toys, "grid", "table", "ddtree", *out))[0] == 0
    found = json.loads((tmp_path / "table.json").read_text())
    row = next(r for r in found["rows"] if r["method"] == "ddtree" and r["source"] == "all")
    assert (found["prompts"], row["texts"], row["timed"], row["agree"]) == (4, 4, 2, 2)
    assert row["same"] == 2 and row["low"] is None  # of two conversations


def test_other_commands_say_that_they_ask_first_turns(call, toys):
    code, _, err = call(*words(toys, "audit", "ddtree"))
    assert "1 of 2 prompts have further turns" in err and code in (0, 1)
