"""Presets: names and files, drafters checked before anything heavy, needs and fetching."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from jinja2 import Template
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from core.decoding.engine import Engine
from core.decoding.request import RunRequest
from core.errors import UserError
from core.methods import fetch
from core.methods.dart import model as dart
from core.methods.dflash import model as dflash
from core.methods.registry import listed, runnable
from core.methods.treeflash.model import save_model as save_treeflash
from core.models import hub, presets
from core.models.hub import Source
from core.models.language import load_language
from core.ngram import NgramStore
from core.rounds.round import new_tokens
from tests.helpers import toys
from tests.helpers.ngram_reference import count_grams, trie_bytes
from tests.helpers.sentences import one_sentence

SIZE = toys.LANGUAGE_SIZE
GRAMS = count_grams([list(b"the cat sat on the mat")])
SIZES = {"vocab_size": SIZE, "dtype": torch.float32}


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A folder with toy targets, their drafters, an n-gram trie and a presets file."""
    folder = tmp_path_factory.mktemp("shelf")
    for family in ("llama", "qwen3", "qwen3_moe"):
        toys.language_model(family).save_pretrained(folder / family)
        toys.tokenizer().save_pretrained(folder / family)
    dflash.FORM.save_model(toys.dflash_model(mask_token_id=258, **SIZES), folder / "dflash")
    save_treeflash(toys.treeflash_model(mask_token_id=258, **SIZES), folder / "treeflash")
    dart.FORM.save_model(toys.dart_model(draft_vocab_size=SIZE, **SIZES), folder / "dart")
    (folder / "grams.trie").write_bytes(trie_bytes(GRAMS))
    (folder / "own.toml").write_text(
        "\n".join(
            f"[{family}]\ntarget = './{family}'\nngram = './grams.trie'\n"
            "drafters = { dflash = './dflash', treeflash = './treeflash', dart = './dart' }\n"
            "template = { mood = 'calm' }\nbudgets = { ddtree = 9 }\n"
            for family in ("llama", "qwen3", "qwen3_moe")
        )
    )
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def named(shelf: Path, family: str = "llama") -> str:
    return f"{shelf / 'own.toml'}#{family}"


# ── names and files ──────────────────────────────────────────────────────────────────────────────


def test_the_shipped_presets():
    names = set(presets.shipped_presets())
    assert names == {
        "smollm2-135m", "qwen3-4b", "qwen3-8b", "qwen3-8b-jetspec", "qwen3-14b",
        "qwen3-coder-30b-a3b", "qwen3.5-9b", "qwen3.6-27b", "qwen3.6-35b-a3b", "qwen3.8-27b",
        "gpt-oss-20b", "gpt-oss-120b", "gemma-4-31b",
        "glm-4.5-air", "llama-3.1-8b", "llama-3.3-70b", "vicuna-7b", "llada-8b",
    }  # fmt: skip
    four = presets.preset_of("qwen3-4b")
    assert four.target == Source("Qwen/Qwen3-4B") and four.template == {"enable_thinking": False}
    assert set(four.drafters) == {"dflash", "treeflash", "dspark", "dart"}
    assert four.ngram == presets.Ngram(Source("fvliang/dart-qwen3-ngram"), "small.trie")
    assert presets.preset_of("llada-8b").diffusion and not four.diffusion


def test_any_other_name_is_a_folder_or_a_hub_id(tmp_path):
    assert (
        presets.preset_of("a/b").target == Source("a/b") and not presets.preset_of("a/b").drafters
    )
    assert presets.preset_of("a/b@v1").target == Source("a/b", "v1")
    odd = tmp_path / "mine@home"
    odd.mkdir()
    found = presets.preset_of(str(odd)).target
    assert found == Source(str(odd)) and found.folder == odd and found.revision is None


def test_paths_in_a_file_start_at_its_folder(shelf):
    found = presets.preset_of(named(shelf))
    assert found.target.folder == shelf / "llama" and found.budgets == {"ddtree": 9}
    assert found.drafters["dart"].folder == shelf / "dart"
    with pytest.raises(UserError, match=r"choose a preset.*llama, qwen3"):
        presets.preset_of(str(shelf / "own.toml"))
    with pytest.raises(UserError, match="choose a preset"):
        presets.preset_of(named(shelf, "no-such"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no preset"),
        ("x = 3", "must be an object, not 3"),
        ("[a]", "target is missing"),
        ("[a", "is not a presets file"),
        ("[a]\ntarget = 3", "target must be a text, not 3"),
        ("[a]\ntarget = 'x'\ncolour = 1", "no field colour"),
        ("[a]\ntarget = 'x'\ndrafters = 'y'", "drafters must be an object"),
        ("[a]\ntarget = 'x'\nbudgets = { ddtree = 0 }", "whole number of at least 1, not 0"),
        ("[a]\ntarget = 'x'\nbudgets = { ddtree = true }", "whole number, not true"),
        ("[a]\ntarget = 'x'\nngram = 'small.trie'", "hub-id/file"),
        ("[a]\ntarget = 'x'\ndiffusion = 1", "true or false"),
        ("[a]\ntarget = 'x'\ntemplate = { a = [1] }", "a number or a text"),
    ],
)
def test_a_wrong_file_is_an_error(tmp_path, text, words):
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(UserError, match=words) as error:
        presets.preset_of(str(tmp_path / "p.toml"))
    assert one_sentence(error)


@pytest.mark.parametrize("table", ["drafters = { eagle = 'y' }", "budgets = { eagle = 4 }"])
def test_a_preset_of_an_unknown_drafter_or_method_is_an_error(tmp_path, table):
    (tmp_path / "p.toml").write_text(f"[a]\ntarget = 'x'\n{table}")
    with pytest.raises(UserError, match="has no 'eagle'") as error:
        Engine(str(tmp_path / "p.toml"))
    assert one_sentence(error)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        presets.preset_of(str(tmp_path / "p.toml"))
    (tmp_path / "q.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not a presets file"):
        presets.preset_of(str(tmp_path / "q.toml"))


# ── decoding with one ────────────────────────────────────────────────────────────────────────────


def tokens(engine, method, **more):
    return new_tokens(list(engine.start(RunRequest("hello", method, 9, 24, **more))))


@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen3_moe"])
def test_every_method_of_a_preset_writes_what_plain_decoding_writes(shelf, cache, family):
    engine = Engine(named(shelf, family), "cpu")
    infos = {name: method.drafter_info for name, method in listed().items()}
    published = [n for n, info in infos.items() if info and info.name in engine.preset.drafters]
    assert len(published) >= 4
    engine.check("ar", *published)
    fetch.fetch(engine.preset)
    expected = tokens(engine, "ar")
    for name in [*published, *(n for n, info in infos.items() if info and not info.checkpoint)]:
        assert tokens(engine, name) == expected


def test_a_header_holds_the_template(shelf, cache):
    header = Engine(named(shelf), "cpu").start(RunRequest("hello", "ar", max_new_tokens=2)).header
    assert header.model["template"] == {"mood": "calm"}
    other = Engine(named(shelf), "cpu", template={"mood": "wild"})
    header = other.start(RunRequest("hello", "ar", max_new_tokens=2)).header
    assert header.model["template"] == {"mood": "wild"}


def test_the_template_decides_how_a_prompt_is_encoded(shelf):
    name = str(shelf / "llama")
    language = load_language(name, "cpu", template={"mood": "calm"})
    language.tokenizer.chat_template = "{{ mood }}: {{ messages[0].content }}"
    assert language.text(language.encode_chat("hi")) == "calm: hi"


def test_a_target_with_tokenizer_model_and_without_a_template(tmp_path):
    """Vicuna's form: a SentencePiece file, and the preset's chat template."""
    vicuna, folder = presets.preset_of("vicuna-7b"), tmp_path / "vicuna"
    words = [str(chat_of(vicuna.chat_template, prompt)) for prompt in ("Why is it so?", "Say why!")]
    trained = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(words * 9), model_writer=trained, model_type="bpe",
        vocab_size=90, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    toys.language_model("llama").save_pretrained(folder)
    (folder / "tokenizer.model").write_bytes(trained.getvalue())
    about = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "legacy": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    own = tmp_path / "own.toml"
    own.write_text(f"[own]\ntarget = './vicuna'\nchat_template = {vicuna.chat_template!r}\n")
    language = load_language(str(own), "cpu")
    text = chat_of(vicuna.chat_template, "Why so?")
    pieces = SentencePieceProcessor(model_proto=trained.getvalue())
    assert language.encode_chat("Why so?") == [1, *pieces.encode(text.removeprefix("<s>"))]
    assert load_language(str(folder), "cpu").tokenizer.chat_template is None


def chat_of(template: str, prompt: str) -> str:
    """A chat template's text of one user turn."""
    message = {"role": "user", "content": prompt}
    made = Template(template).render(
        messages=[message], add_generation_prompt=True, bos_token="<s>", eos_token="</s>"
    )
    assert made.endswith(f" USER: {prompt} ASSISTANT:") and made.startswith("<s>A chat between")
    return made


# ── checked before any weight is read ────────────────────────────────────────────────────────────


@pytest.fixture
def no_weights(monkeypatch):
    """Reading a weight is an error; a head's map of tokens is none."""
    from transformers import AutoModelForCausalLM

    from core.models import checkpoint

    def refuse(*_args, **_kwargs):
        raise AssertionError("a weight was read")

    real = checkpoint.read_tensor
    monkeypatch.setattr(
        checkpoint,
        "read_tensor",
        lambda opened, name: real(opened, name) if name in checkpoint.MAPS else refuse(),
    )
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", refuse)


def test_matching_drafters_pass_without_a_weight_being_read(shelf, no_weights):
    Engine(named(shelf), "cpu").check(*runnable(named(shelf)))
    Engine().check(*runnable("smollm2-135m"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": 64}, "hidden size"),
        ({"vocab_size": 100}, "vocabulary"),
        ({"num_target_layers": 9}, "layer count"),
    ],
)
def test_another_targets_drafter_is_refused(shelf, no_weights, tmp_path, changes, words):
    fields = SIZES | changes
    dflash.FORM.save_model(toys.dflash_model(**fields), tmp_path / "a")
    save_treeflash(toys.treeflash_model(**fields), tmp_path / "b")
    for folder, method in (("a", "ddtree"), ("b", "treeflash")):
        with pytest.raises(UserError, match=words) as error:
            Engine(str(shelf / "llama"), "cpu", tmp_path / folder).check(method)
        assert one_sentence(error)


@pytest.mark.parametrize("kind", ["dflash", "treeflash", "dart"])
@pytest.mark.parametrize("fault", ["missing", "surplus"])
def test_a_missing_or_surplus_tensor_is_named(shelf, tmp_path, kind, fault, monkeypatch):
    from safetensors.torch import load_file, save_file

    state = load_file(shelf / kind / "model.safetensors")
    if fault == "missing":
        del state[next(n for n in sorted(state) if n.endswith("fc.weight"))]
    else:
        state["extra.weight"] = torch.zeros(2)
    save_file(state, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((shelf / kind / "config.json").read_text())
    method = {"dflash": "ddtree"}.get(kind, kind)
    with pytest.raises(UserError, match=r"fc\.weight|extra\.weight") as error:
        Engine(str(shelf / "llama"), "cpu", tmp_path).check(method)
    assert one_sentence(error)


def test_a_drafter_of_another_kind_is_refused(shelf, no_weights):
    with pytest.raises(UserError, match="no DART checkpoint: the config has no field"):
        Engine(str(shelf / "llama"), "cpu", shelf / "dflash").check("dart")


@pytest.mark.parametrize("template", [{}, {"enable_thinking": True}])
def test_a_published_drafter_needs_its_own_chat_template(template):
    engine = Engine("Qwen/Qwen3-4B", "cpu", "z-lab/Qwen3-4B-DFlash-b16", template)
    with pytest.raises(UserError, match=r"enable_thinking=false.*--model qwen3-4b") as error:
        engine.check("ddtree")
    assert one_sentence(error)


def test_a_presets_template_fits_its_drafters():
    for preset in presets.shipped_presets().values():
        for drafter in preset.drafters.values():
            presets.check_template(drafter, preset.template)
    for name in ("", ".gguf", "-Q8_0.gguf", ".bf16.gguf"):
        with pytest.raises(UserError, match="enable_thinking"):
            presets.check_template(Source(f"/models/Qwen3-8B-DFlash-b16{name}"), {})
    for name in ("my-own", "my-own.gguf", "Qwen3-8B-DFlash-b16x-Q8_0.gguf"):
        presets.check_template(Source(f"/models/{name}"), {})


def test_a_target_with_layers_of_an_unknown_kind_is_refused(tmp_path, no_weights):
    about = {"model_type": "glm_moe_dsa"}
    (tmp_path / "config.json").write_text(json.dumps(about))
    toys.tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UserError, match="'indexed_attention'") as error:
        load_language(str(tmp_path), "cpu")
    assert one_sentence(error)


def test_a_diffusion_model_does_not_decode_token_by_token():
    with pytest.raises(UserError, match="denoise"):
        load_language("llada-8b", "cpu")


# ── the hub ──────────────────────────────────────────────────────────────────────────────────────


class Hub:
    """A hub that holds the shelf's folders as repositories ``shelf/NAME``."""

    def __init__(self, shelf: Path):
        self.shelf, self.requests = shelf, []

    def fetch(self, source: Source, patterns: tuple[str, ...]) -> Path:
        self.requests.append((source.name, source.revision, patterns))
        return self.shelf / source.name.partition("/")[2]


@pytest.fixture
def online(shelf, monkeypatch):
    made = Hub(shelf)
    monkeypatch.setattr(Source, "fetch", lambda self, *asked: made.fetch(self, asked[0]))
    return made


def test_a_check_fetches_only_a_drafters_small_files(shelf, online, no_weights):
    Engine(str(shelf / "llama"), "cpu", "shelf/dflash@v2").check("ddtree")
    assert online.requests == [("shelf/dflash", "v2", hub.SMALL_FILES)]


def test_a_hub_drafter_is_fetched_once(shelf, online):
    engine = Engine(str(shelf / "llama"), "cpu", "shelf/dflash")
    assert tokens(engine, "ddtree") == tokens(engine, "ar") == tokens(engine, "dflash")
    assert online.requests == [("shelf/dflash", None, (*hub.SMALL_FILES, *hub.WEIGHTS))]


def test_a_hub_that_cannot_be_reached_is_an_error(monkeypatch):
    import huggingface_hub

    def fail(*_args, **_kwargs):
        raise OSError("no route\nto anywhere")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(UserError, match=r"'a/b@main' cannot be loaded: no route$"):
        Source("a/b", "main").config_folder()


# ── what one needs ───────────────────────────────────────────────────────────────────────────────


def test_the_n_gram_store_is_made_once_and_holds_the_tries_counts(shelf, cache):
    preset = presets.preset_of(named(shelf))
    with pytest.raises(UserError, match="fetch"):
        Engine(named(shelf), "cpu").method("dart")
    assert Engine(named(shelf), "cpu").method("dart", {"ngram_weight": 0}).builder is not None
    fetch.fetch(preset)
    (made,) = (cache / "ngram").iterdir()
    assert NgramStore.open(made).nodes == len(GRAMS) and made.suffix == ".safetensors"
    stamp = made.stat().st_mtime_ns
    fetch.fetch(preset)
    assert made.stat().st_mtime_ns == stamp
    os.utime(made, ns=(0, 0))  # as if the trie had been made again since
    with pytest.raises(UserError, match="fetch"):
        Engine(named(shelf), "cpu").method("dart")
    fetch.fetch(preset)
    assert made.stat().st_mtime_ns >= stamp
    assert Engine(named(shelf), "cpu").method("dart").builder is not None


def test_the_needs_of_a_local_preset(shelf, cache):
    found = fetch.needs(presets.preset_of(named(shelf)))
    assert [part.what for part in found.parts] == ["target", "dflash", "treeflash", "dart", "ngram"]
    assert [part.here for part in found.parts] == [True, True, True, True, False]
    assert found.missing == (shelf / "grams.trie").stat().st_size


def test_a_hub_presets_needs_count_only_the_files_that_are_fetched():
    files = {"model.safetensors": 100, "config.json": 5, "picture.png": 1000, "small.trie": 70}
    found = fetch.needs(presets.preset_of("qwen3-4b"), lambda _: files)
    assert [part.size for part in found.parts] == [105, 105, 105, 105, 105, 70]


def test_a_head_in_the_targets_own_files_is_fetched_with_it():
    found = fetch.needs(presets.preset_of("qwen3.8-27b"), lambda _: {"model.safetensors": 100})
    assert [part.what for part in found.parts] == ["target", "dflash2"]


def test_without_the_hub_the_published_parameter_count_is_used():
    def unreachable(_source):
        raise UserError("no network")

    found = fetch.needs(presets.preset_of("qwen3-8b"), unreachable)
    assert found.parts[0].size == 2 * 8_190_735_360
    assert found.parts[1].size is None and found.missing is None


def test_the_embedded_targets_needs(cache):
    found = fetch.needs(presets.preset_of("smollm2-135m"))
    assert found.parts[0].size == 86_000_000 and not found.parts[0].here


@pytest.mark.parametrize("asked", [True, False])
def test_what_a_killed_fetch_left_is_not_a_model(tmp_path, monkeypatch, asked):
    """Until the last file is there, whether or not the hub says which files there are."""
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    there = tmp_path / "models--org--toy"
    for folder in ("refs", "blobs", "snapshots/abc"):
        (there / folder).mkdir(parents=True)
    (there / "refs" / "main").write_text("abc")
    files = ["config.json", hub.INDEX, "model-1.safetensors", "model-2.safetensors"]
    index = {"weight_map": {"a": files[2], "b": files[3]}}
    preset = replace(
        presets.preset_of("qwen3-4b"), target=Source("org/toy"), drafters={}, ngram=None
    )

    def ask(_source):
        if asked:
            return dict.fromkeys([*files, "model.gguf"], 5)
        raise UserError("no network")

    for file in files:
        (there / "blobs" / f"{file}.incomplete").write_text("half")
        assert not fetch.needs(preset, ask).parts[0].here
        (there / "snapshots" / "abc" / file).write_text(json.dumps(index))
    (part,) = fetch.needs(preset, ask).parts
    assert part.here and part.size == (20 if asked else 2 * preset.parameters)


def test_a_part_without_its_index_is_not_a_model(tmp_path):
    """The index may come last: until then nobody knows which parts are missing."""
    for name in ("config.json", "model-00001-of-00002.safetensors"):
        (tmp_path / name).write_text("{}")
    assert not Source(str(tmp_path)).is_whole()
    second = "model-00002-of-00002.safetensors"
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": second}}
    (tmp_path / hub.INDEX).write_text(json.dumps(index))
    assert not Source(str(tmp_path)).is_whole()
    (tmp_path / second).write_text("{}")
    assert Source(str(tmp_path)).is_whole()


def test_a_fetch_clears_what_killed_ones_left_of_files_that_are_whole(tmp_path, monkeypatch):
    import huggingface_hub

    snapshot, blobs = tmp_path / "org" / "snapshots" / "abc", tmp_path / "org" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for name in ("aa", "aa.1f.incomplete", "aa.incomplete", "bb.2e.incomplete"):
        (blobs / name).write_text("x")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(snapshot))
    assert Source("org/toy").fetch(("*",)) == snapshot
    assert sorted(f.name for f in blobs.iterdir()) == ["aa", "bb.2e.incomplete"]


def test_a_hub_files_name_cannot_leave_the_cache_folder(cache):
    path = fetch._store_path(presets.Ngram(Source("a/../b", "x/y"), "../../c.trie"))
    assert path.parent == cache / "ngram" and "/" not in path.name and path.name[0] != "."


# ── the command line ─────────────────────────────────────────────────────────────────────────────


def test_doctor_and_fetch_take_a_preset(shelf, cache, capsys):
    from app.cli import main

    assert main(["model", "doctor", named(shelf)]) == 0
    out = capsys.readouterr().out
    assert "to fetch" in out and "for weights in float32" in out and "1,000 tokens of text" in out
    assert out.count("opens as a drafter") == 3
    assert main(["model", "fetch", named(shelf)]) == 0 and "is ready" in capsys.readouterr().out
    assert (
        main(["model", "doctor", named(shelf)]) == 0
        and "0 bytes to fetch" in capsys.readouterr().out
    )
    assert main(["model", "doctor", str(shelf / "nothing.toml")]) == 2


def test_run_takes_a_presets_budget_and_template(shelf, cache, capsys):
    from app.cli import main

    line = ["run", "ddtree", "--model", named(shelf), "--device", "cpu", "--prompt", "hi", "--json"]
    assert main([*line, "--max-new-tokens", "4", "--template", "mood=no"]) == 0
    assert json.loads(capsys.readouterr().out)["budget"] == 9
    assert main([*line, "--max-new-tokens", "4", "--budget", "5"]) == 0
    assert json.loads(capsys.readouterr().out)["budget"] == 5


def test_a_drafter_that_is_neither_folder_nor_hub_id_is_refused(capsys):
    from app.cli import main

    assert main(["run", "ddtree", "--drafter", "nowhere", "--prompt", "hi"]) == 2
    assert "no drafter folder nowhere" in capsys.readouterr().err
