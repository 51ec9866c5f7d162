"""Every reader of outside files, on damaged files: one sentence, in time, in little memory.

Traces have their own battery (``test_mutated.py``), and so have questions of a page
(``test_mutated_questions.py``). Together they try some 60,000 mutants in a minute of one core.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save_file

from analysis.collected import calibration
from analysis.collected.collect import CollectionPlan, collect
from analysis.collected.collection import Collection
from analysis.collected.whatif import Simulation
from analysis.drafters.trained import read_accuracy
from analysis.engines.served import read_served
from analysis.engines.texts import read_texts
from analysis.engines.trees import write_trees
from analysis.experiments.cost import cost_from_json
from analysis.experiments.step_times import read_step_times
from analysis.experiments.sweep import Plan, Prompt, Terms
from analysis.experiments.sweep_folder import open_folder
from analysis.experiments.sweep_table import read_results
from analysis.experiments.variants import Variant
from analysis.kinds import kind_of
from analysis.measures import packed, packing
from app.commands.prompts import read_prompt_file
from core.chat import chat_of, last_message
from core.decoding.dumps import read_dump
from core.diffusion.draft_graph import DraftGraph
from core.diffusion.graph_files import read_graph, write_graph
from core.errors import UserError
from core.journal import Journal
from core.json_input import read_json
from core.methods.dart import model as dart
from core.methods.dflash import model as dflash
from core.methods.dflash2 import model as dflash2
from core.methods.domino import model as domino
from core.methods.dspark import model as dspark
from core.methods.eagle2 import model as eagle2
from core.methods.eagle3 import model as eagle3
from core.methods.gemma4_assistant.model import load_assistant
from core.methods.hydra import model as hydra
from core.methods.loading import load_drafter
from core.methods.medusa import model as medusa
from core.methods.medusa.tree import read_accuracies, write_accuracies
from core.methods.method import find_drafter
from core.methods.names import DRAFTERS
from core.methods.opening import opening
from core.methods.sps import model as sps
from core.methods.treeflash import model as treeflash
from core.methods.xpress import model as xpress
from core.models.adapter import AdapterConfig, load_adapter, save_adapter
from core.models.checkpoint import Form, WithHead
from core.models.hub import shards
from core.models.language import Language, load_language
from core.models.outline import outline
from core.models.presets import read_presets
from core.ngram import NgramStore, build_store, read_trie
from core.ngram.documents import read_documents
from core.samples import read_samples
from core.tensor_files import read_arrays
from core.traces.reader import read_trace
from core.traces.schema import Trace
from core.traces.writer import write_trace
from tests.helpers import toys
from tests.helpers.collected_toys import KEPT, source, table
from tests.helpers.engine_answers import LLAMA, SGLANG, VLLM, trees
from tests.helpers.engine_logs import LOGS
from tests.helpers.fakes import make_header, make_run
from tests.helpers.gguf_files import write_llama
from tests.helpers.mutants import NASTY, UNSEEN, at_most, in_little_memory, of_bytes, of_json
from tests.helpers.ngram_reference import count_grams, trie_bytes
from tests.helpers.timing import amount
from tests.helpers.toys_on_disk import folder_of_process, save_toys

Mutate = Callable[[bytes, random.Random], bytes]
SECONDS = 10  # what one file may take


# ── mutations ────────────────────────────────────────────────────────────────────────────────────


def of_header(data: bytes, rng: random.Random) -> bytes:
    """A safetensors file: its header changes as JSON, its length, or its bytes."""
    size = int.from_bytes(data[:8], "little")
    match rng.randrange(8):
        case 0:
            claimed = rng.choice((0, 1, size - 1, size + 1, len(data), 2**31, 2**63, 2**64 - 1))
            return (claimed % 2**64).to_bytes(8, "little") + data[8:]
        case 1:
            return of_bytes(data, rng)
        case 2:
            return data[: rng.randrange(len(data))]
    header = of_json(data[8 : 8 + size], rng)
    return len(header).to_bytes(8, "little") + header + data[8 + size :]


def of_metadata(data: bytes, rng: random.Random) -> bytes:
    """A safetensors file whose metadata holds JSON: that changes, in a sound header."""
    size = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + size])
    except ValueError:
        return data
    if isinstance(header, dict) and isinstance(inner := header.get("__metadata__"), dict):
        inner["header"] = of_json(str(inner.get("header")).encode(), rng).decode("utf-8", "replace")
    made = json.dumps(header).encode()
    return len(made).to_bytes(8, "little") + made + data[8 + size :]


def of_numbers(data: bytes, rng: random.Random) -> bytes:
    """Four or eight bytes become another number, or the file ends early."""
    if rng.random() < 0.1:
        return data[: rng.randrange(len(data))]
    number = rng.choice((0, 1, -1, 2, 2**16, 2**31 - 1, -(2**31)))
    at = rng.randrange(0, max(len(data) - 8, 1), 4)
    return data[:at] + struct.pack(rng.choice("iq"), number) + data[at + 4 :][:None]


def of_words(data: bytes, rng: random.Random) -> bytes:
    """A text of values (TOML, CSV): one becomes something nasty, or a line goes or comes twice."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    separator = b"," if b"," in lines[at] and b"=" not in lines[at] else b"="
    parts = lines[at].split(separator)
    match rng.randrange(5):
        case 0:
            lines.insert(at, lines[rng.randrange(len(lines))])
        case 1:
            del lines[at]
        case 2:
            return of_bytes(data, rng)
        case _:
            nasty = rng.choice(NASTY).encode("utf-8", "surrogatepass")
            parts[rng.randrange(len(parts))] = nasty
            lines[at] = separator.join(parts)
    return b"\n".join(lines)


# ── readers ──────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Reader:
    """``make`` writes a sound file into a folder and returns it; ``read`` must accept it."""

    make: Callable[[Path], Path]
    read: Callable[[Path], object]
    mutations: tuple[Mutate, ...] = (of_json, of_json, of_json, of_bytes)
    count: int = 1000


def compact(path: Path) -> Path:
    """The JSON file in one line, as the mutations take it."""
    path.write_text(json.dumps(json.loads(path.read_text())))
    return path


def make_config(save: Callable, model: Callable) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        save(model(5, dtype=torch.bfloat16), folder, True)
        return compact(folder / "config.json")

    return make


def make_weights(save: Callable, model: Callable) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        save(model(5, dtype=torch.bfloat16), folder, True)
        return folder / "model.safetensors"

    return make


def load_dart(path: Path) -> object:
    return dart.FORM.load_checkpoint(path.parent, torch.bfloat16, "cpu")


def load_dflash(path: Path) -> object:
    return dflash.FORM.load_model(path.parent, torch.bfloat16, "cpu")


def load_treeflash(path: Path) -> object:
    return treeflash.FORM.load_model(path.parent, torch.bfloat16, "cpu")


def make_collected(folder: Path) -> Path:
    return collect(source(), toys.PROMPT, folder / "t.safetensors", CollectionPlan(6, 8), "hi").path


def use_collected(path: Path) -> None:
    collection = Collection.load(path)
    assert all(isinstance(collection.piece(int(t)), str) for t in collection.tokens[:8])
    for method in ("ddtree", "treeflash", "dart+best-first"):
        Simulation(collection, method).run(8)


def make_store(folder: Path) -> Path:
    path = folder / "store.safetensors"
    build_store([[1, 2, 3, 1, 2, 3, 4]], path, toys.VOCABULARY)
    return path


def use_store(path: Path) -> None:
    NgramStore.open(path).probabilities([1, 2], np.arange(5))


def make_trie(folder: Path) -> Path:
    path = folder / "a.trie"
    path.write_bytes(trie_bytes(count_grams([[1, 2, 3, 1, 2, 3, 4]])))
    return path


def read_and_convert(path: Path) -> None:
    read_trie(path, path.with_name("converted.safetensors"))


def make_accuracies(folder: Path) -> Path:
    write_accuracies(folder / "a.json", np.full((3, 4), 0.25))
    return folder / "a.json"


def make_presets(folder: Path) -> Path:
    path = folder / "presets.toml"
    path.write_text(
        '[one]\ntarget = "org/name"\nabout = "x"\nbudgets = { ddtree = 16 }\n'
        'drafters.dflash = "org/drafter"\ntemplate.enable_thinking = false\n'
        '[two]\ntarget = "./here"\nngram = "org/name/a.trie"\nparameters = 9\n'
    )
    return path


def make_lines(name: str, lines: list[object]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
        return path

    return make


def use_documents(path: Path) -> None:
    list(read_documents([path], lambda texts: [np.arange(len(text)) for text in texts]))


def make_graph(folder: Path) -> Path:
    path = folder / "graph.json"
    write_graph(path, DraftGraph((((1, 1),), ((1, 2),), ((1, 1), (2, 1))), name="g"))
    return compact(path)


def make_table(folder: Path) -> Path:
    table().to_csv(folder / "calibration.csv", index=False)
    return folder / "calibration.csv"


def make_prompts(folder: Path) -> Path:
    pd.DataFrame(CHATS[:2]).to_parquet(folder / "p.parquet", index=False)
    return folder / "p.parquet"


def use_prompts(path: Path) -> None:
    for prompt in read_prompt_file(path):
        last_message(prompt.text)
        chat_of(prompt.text)


def make_parquet(folder: Path) -> Path:
    table().to_parquet(folder / "calibration.parquet", index=False)
    return folder / "calibration.parquet"


def use_table(path: Path) -> None:
    found: pd.DataFrame = calibration.read_table(path)
    calibration.curves(found)


SWEEP = Plan(Terms("m"), (Variant("plain", "ar"),), (Prompt("one"),))


def make_sweep(folder: Path) -> Path:
    with open_folder(folder / "sweep", SWEEP) as sweep:
        for job in sweep.jobs:
            path = folder / "sweep" / "traces" / job.file
            write_trace(path, Trace(make_header(), tuple(make_run(2, 4)), {}))
    return compact(folder / "sweep" / "sweep.json")


def use_sweep(path: Path) -> None:
    with open_folder(path.parent, SWEEP) as sweep:
        sweep.read()
        assert sweep.rows() is not None


def make_cost(folder: Path) -> Path:
    path = folder / "cost.json"
    path.write_text(json.dumps(KEPT.to_json()))
    return path


def use_cost(path: Path) -> None:
    cost_from_json(read_json(path))


def make_adapter(folder: Path) -> Path:
    a, b = torch.ones(4, 16), torch.ones(16, 4)
    config = AdapterConfig("base", 1, 16, 4, 8.0)
    save_adapter(folder, {"layers.0.q_proj.a": a, "layers.0.q_proj.b": b}, config)
    return compact(folder / "config.json")


def make_tensors(folder: Path) -> Path:
    save_file({"tokens": np.arange(9), "x": np.ones((2, 3), np.float32)}, folder / "t.safetensors")
    return folder / "t.safetensors"


def save_eagle(model: eagle3.EagleModel, folder: Path, small: bool) -> None:
    eagle3.save(WithHead(model, None, None), folder, small)


def load_eagle(path: Path) -> object:
    return eagle3.FORM.load_checkpoint(path.parent, torch.bfloat16, "cpu")


def load_with(form: Form[Any, Any]) -> Callable[[Path], object]:
    return lambda path: form.load_model(path.parent, torch.bfloat16, "cpu")


def sps_adapter(*_: object, **__: object) -> sps.DraftAdapter:
    return sps.DraftAdapter(sps.DraftConfig(1, 2, {"q_proj": (32, 32)}))


def load_sps(path: Path) -> object:
    config = sps.FORM.load_config(path.parent)
    return sps.load_adapter(path.parent, config)


def make_served(folder: Path) -> Path:
    path = folder / "served.json"
    path.write_text(json.dumps([VLLM, SGLANG, LLAMA]))
    return path


def use_served(path: Path) -> None:
    json.dumps(read_served(path).to_json(), allow_nan=False)


def make_text(text: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / "served.log"
        path.write_text(text)
        return path

    return make


def make_trees(folder: Path) -> Path:
    path = folder / "trees.json"
    path.write_text(json.dumps(trees()[0]))
    return path


def use_trees(path: Path) -> None:
    out = path.with_name("t.jsonl")
    assert write_trees(path, out) == len(read_trace(out).rounds)


def make_csv(text: str, name: str = "t.csv") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_text(text)
        return folder / name

    return make


def make_dump(folder: Path) -> Path:
    states = np.ones((5, 2, 4), np.float32)
    file = folder / "t.safetensors"
    save_file({"token_ids": np.arange(5), "hidden_states": states}, file)
    return file


def make_pack(folder: Path) -> Path:
    run = folder / "run.jsonl"
    write_trace(run, Trace(make_header(), tuple(make_run(2, 4)), {}))
    packing.pack([run], folder / "pack", read_trace)
    (table,) = (folder / "pack").glob("*.nodes.parquet")
    return table


def use_pack(path: Path) -> None:
    for part in packed.parts_of(path.parent):
        assert part.runs and [part.frame(name) for name in ("rounds", "positions", "nodes")]


def make_results(folder: Path) -> Path:
    row = {"method": "ddtree", "budget": 4, "options": "{}", "seed": 0, "prompt_hash": "a"}
    row |= {"temperature": 0.0, "tokens": 6, "seconds": 1.0, "acceptance_lengths": [2, 3, 1]}
    pd.DataFrame([row] * 3).to_parquet(folder / "results.parquet", index=False)
    return folder / "results.parquet"


def make_gguf(folder: Path) -> Path:
    write_llama(toys.language_model("llama").float(), folder / "t.gguf")
    return folder / "t.gguf"


def use_gguf(path: Path) -> None:
    if refused := opening(str(path), torch.bfloat16).refused:
        raise UserError(refused[0])


def make_index(folder: Path) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {}, "weight_map": {"a": "1.safetensors", "b": "2"}}))
    return path


def make_target(folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps(toys.config("llama").to_dict()))
    return folder / "config.json"


def use_target(path: Path) -> None:
    assert outline(str(path.parent), torch.float32)


def use_kind(path: Path) -> None:
    """Any bytes are of some kind; a sentence is said of it."""
    said = str(kind_of(path))
    assert said and not UNSEEN.search(said) and "\n" not in said


def make_trace(folder: Path) -> Path:
    write_trace(folder / "t.jsonl", Trace(make_header(), tuple(make_run(2, 4)), {}))
    return folder / "t.jsonl"


TIMES = "batch,tokens,ms\n1,1,10\n1,2,11\n1,8,14\n2,1,12\n2,2,13\n"
RESULTS = (
    "method,budget,options,seed,prompt_hash,temperature,tokens,seconds,acceptance_lengths\n"
    'ddtree,4,{},0,a,0.0,6,1.0,"[2, 3, 1]"\nar,0,{},0,a,0.0,6,2.0,"[1, 1, 1, 1, 1, 1]"\n'
)
LOGGED = "step,full_acc_0,full_acc_1\n1,0.5,0.25\n2,0.6,0.3\n"
ANSWERED: list[object] = [{"text": "ab"}, {"token_ids": [1, 2], "prompt_token_ids": [3]}]
KEPT_LINES: list[object] = [{"key": "made of", "value": [1]}, {"key": "a", "value": {"b": 2}}]


SAVED = {
    "sps": (sps.save_adapter, sps_adapter, load_sps),
    "eagle3": (save_eagle, lambda *_, **more: toys.eagle_drafter(**more).model, load_eagle),
    **{
        kind: (form.save_model, lambda *_, made=made, **more: made().model, load_with(form))
        for kind, form, made in (
            ("eagle2", eagle2.FORM, toys.feature_drafter),
            ("medusa", medusa.FORM, toys.medusa_drafter),
            ("hydra", hydra.FORM, toys.hydra_drafter),
            ("hydra++", hydra.FORM, toys.hydra_plus_drafter),
            ("dspark", dspark.FORM, toys.dspark_drafter),
            ("dflash2", dflash2.FORM, toys.dflash2_drafter),
            ("xpress", xpress.FORM, toys.xpress_drafter),
            ("domino", domino.FORM, toys.domino_drafter),
        )
    },
    "dflash": (dflash.FORM.save_model, toys.dflash_model, load_dflash),
    "treeflash": (treeflash.save_model, toys.treeflash_model, load_treeflash),
    "dart": (dart.FORM.save_model, toys.dart_model, load_dart),
}


@cache
def on_disk() -> tuple[Path, Language]:
    """A folder with a drafter of every kind, and the target of most."""
    folder = folder_of_process()
    target, _ = save_toys(folder)
    return folder, load_language(str(target), "cpu")


def make_copy(kind: str, ending: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        shutil.copytree(on_disk()[0] / kind, folder, dirs_exist_ok=True)
        (path,) = folder.glob(f"*{ending}")
        return compact(path) if ending == ".json" else path

    return make


def load_kind(kind: str) -> Callable[[Path], object]:
    """As a run loads it."""
    info = find_drafter(kind)
    return lambda path: load_drafter(info, on_disk()[1], path.parent, info.options())


COPIED = {
    "mtp": load_kind("mtp"),
    "peagle": load_kind("peagle"),
    "uno": load_kind("uno"),
    "gemma4-assistant": lambda path: load_assistant(
        path.parent, torch.float32, torch.device("cpu")
    ),
}
TENSORS = (of_header, of_header, of_header, of_bytes)
TEXT = (of_words, of_words, of_bytes)
TEXTS: list[object] = [{"tokens": [1, 2]}, {"text": "ab"}, {"prompt": "x", "answer": "y"}]
CHATS: list[object] = [
    {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]},
    {"turns": ["a", "b"], "category": "c"},
    {"body": {"messages": [{"role": "user", "content": [{"type": "text", "text": "b"}]}]}},
    [{"from": "human", "value": "a"}, {"from": "gpt", "tool_calls": [{"function": {}}]}],
]
PROMPTS: list[object] = [{"prompt": "why?", "source": "a"}, {"prompt": "b", "answer": "c"}]
READERS = {
    **{
        f"{kind} config": Reader(make_config(save, model), load, count=350)
        for kind, (save, model, load) in SAVED.items()
    },
    **{
        f"{kind} weights": Reader(make_weights(save, model), load, TENSORS, 500)
        for kind, (save, model, load) in SAVED.items()
    },
    **{
        f"{kind} {what}": Reader(make_copy(kind, ending), load, mutations, 250)
        for kind, load in COPIED.items()
        for what, ending, mutations in (
            ("config", ".json", (of_json, of_json, of_bytes)),
            ("weights", ".safetensors", TENSORS),
        )
    },
    "denoiser": Reader(make_adapter, lambda path: load_adapter(path.parent)),
    "tensors": Reader(make_tensors, lambda path: read_arrays(path, "file"), TENSORS, 1200),
    "collected text": Reader(make_collected, use_collected, (of_metadata, *TENSORS), 1200),
    "n-gram store": Reader(make_store, use_store, (*TENSORS, of_numbers), 1200),
    "trie": Reader(make_trie, read_and_convert, (of_numbers, of_numbers, of_bytes), 600),
    "accuracies": Reader(make_accuracies, read_accuracies),
    "presets": Reader(make_presets, read_presets, TEXT),
    "prompts": Reader(make_lines("p.jsonl", PROMPTS), read_prompt_file),
    "chats": Reader(make_lines("p.jsonl", CHATS), use_prompts),
    "prompts as Parquet": Reader(make_prompts, use_prompts, (of_bytes,), 500),
    "prompts as text": Reader(make_lines("p.txt", ["why?", "x"]), read_prompt_file, TEXT, 300),
    "answers": Reader(make_lines("p.jsonl", PROMPTS), read_samples),
    "documents": Reader(make_lines("d.jsonl", TEXTS), use_documents),
    "draft graph": Reader(make_graph, read_graph),
    "calibration.csv": Reader(make_table, use_table, TEXT, 300),
    "calibration.parquet": Reader(make_parquet, use_table, (of_bytes,), 500),
    "sweep": Reader(make_sweep, use_sweep, count=500),
    "cost": Reader(make_cost, use_cost),
    "served text": Reader(make_served, use_served),
    **{f"counts: {name}": Reader(make_text(t), use_served, TEXT, 300) for name, t in LOGS.items()},
    "step times": Reader(make_csv(TIMES), read_step_times, TEXT, 400),
    "trainer's log": Reader(make_csv(LOGGED), read_accuracy, TEXT, 400),
    "trainer's JSON": Reader(make_lines("a.json", [[{"acc_0": 0.7, "acc_1": 0.5}]]), read_accuracy),
    "a grid's results": Reader(make_csv(RESULTS), read_results, TEXT, 200),
    "results.parquet": Reader(make_results, read_results, (of_bytes,), 500),
    "hidden states": Reader(make_dump, read_dump, TENSORS, 1000),
    "pack": Reader(make_pack, use_pack, (of_bytes,), 200),
    "GGUF header": Reader(make_gguf, use_gguf, (of_numbers, of_bytes), 60),
    "index": Reader(make_index, lambda path: shards(path.parent), count=1000),
    "target config": Reader(
        make_target, lambda path: outline(str(path.parent), torch.float32), count=120
    ),
    "responses": Reader(make_lines("r.json", [ANSWERED]), read_texts),
    "journal": Reader(make_lines("j.jsonl", KEPT_LINES), Journal, count=500),
    "saved trees": Reader(make_trees, use_trees, count=400),
}


SEEN = {  # files whose kind is told from what they hold
    "tensors": (make_tensors, TENSORS),
    "trace": (make_trace, (of_json, of_bytes)),
    "served": (make_served, (of_json, of_bytes)),
    "table": (make_table, TEXT),
    "parquet": (make_parquet, (of_bytes,)),
    "results": (make_csv(RESULTS), TEXT),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_damaged_file_is_of_some_kind(name: str, tmp_path: Path):
    (make, mutations), rng = SEEN[name], random.Random(name)
    path = make(tmp_path)
    whole = path.read_bytes()
    for _ in range(300):
        path.write_bytes(rng.choice(mutations)(whole, rng))
        with at_most(SECONDS):
            use_kind(path)


@pytest.mark.parametrize("name", READERS)
@in_little_memory()
def test_a_damaged_file_is_read_or_refused_with_one_sentence(name: str, tmp_path: Path):
    reader, rng = READERS[name], random.Random(name)
    path = reader.make(tmp_path)
    reader.read(path)
    whole, accepted = path.read_bytes(), 0
    tried = amount(min(reader.count, max(40, reader.count // 20)), reader.count)
    for _ in range(tried):
        data = whole
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            data = rng.choice(reader.mutations)(data, rng)
        path.write_bytes(data)
        try:
            with at_most(SECONDS):
                reader.read(path)
            accepted += 1
        except UserError as error:
            assert 5 < len(str(error)) < 2000 and "\n" not in str(error)
            assert not UNSEEN.search(str(error))
        except BaseException:
            (tmp_path / "found").write_bytes(data)
            raise
    assert 0 < accepted < tried


def test_a_thorough_run_reads_as_many_mutants_as_is_said_of_every_kind_of_drafter():
    assert sum(reader.count for reader in READERS.values()) >= 36_000
    own = {name for name in DRAFTERS if find_drafter(name).checkpoint is not None}
    assert {name.removesuffix(" config") for name in READERS} >= own
