"""Which kind of file something is, by its contents: everything Draftscope writes or reads, and
what else people have beside it. One table for the command line and the page. Never torch.

Only the beginning of a file is looked at, the whole of one JSON value, or all lines of a text for
an engine's counts, within the limits of ``core`` and ``analysis.engines``. Nothing is executed, and
no pickle is opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from analysis.engines.lines import forms_of, text_lines
from analysis.engines.served import holds_counts
from core.chat import is_chat
from core.errors import UserError, WrongKind, reading
from core.json_input import MAX_BYTES, parse_json, read_json
from core.lines import lines, open_regular
from core.readers import response_of
from core.samples import CHAT_FIELDS, TURNS
from core.traces.schema import FORMAT
from core.visible import visible

BEGINNING = 1 << 16  # bytes
LOOKED_AT = 10_000  # lines of a text, for what it is where it has no counts
SHOWN = 6  # columns that are named of a table that is not known

# What a file is, with its article, and what reads it: the end of a sentence.
Kind = str

TRACE = "a trace, which `trace show` and `report` read"
COLLECTED = "a collected text, which `whatif` and `cost` read"
CALIBRATION = "a table of `calibrate`, which the page opens under Calibration"
TREES = "DDTree's saved trees, which `trace import` makes a trace of"
COUNTS = "an engine's counts of its drafts, which `trace import` reads"
GRID = "the results of a grid, which the page opens under Results"
TABLE = "a table of `grid table`, which the page opens under Results"
COST = "a result of `cost --json`, which `advise` and the page's What-if read"
STEPS = "step times, which `advise --cost` and the page's Results read"
CONFIG = "a checkpoint's config: `model doctor FOLDER` says what its folder opens as"
WEIGHTS = "a checkpoint's weights: `model doctor FOLDER` says what its folder opens as"
PROMPTS = "prompts, which `run --prompts` reads"
EMPTY = "empty"
JSON, TEXT = "JSON of another kind", "text of another kind"

_FOLDERS = {  # a pattern of files in it → what the folder is
    "[0-9][0-9][0-9][0-9][0-9]*.runs.parquet": "a pack of traces, which `report` reads",
    "sweep.json": "a grid's folder: its traces lie in traces, its table is results.parquet",
    "table.json": "the folder of a `grid table`, whose table.json the page opens",
    "calibration.parquet": "the folder of a `calibrate`, whose table the page opens",
    "config.json": "a checkpoint: `model doctor FOLDER` says what it opens as",
}


def kind_of(path: Path) -> Kind:
    """The kind of a file or a folder. Raises UserError for one that cannot be read."""
    with reading(path):
        if path.is_dir():
            return _of_folder(path)
        with open_regular(path) as file:
            head = file.read(BEGINNING)
    if not head.strip():
        return EMPTY
    if head[:2] == b"\x1f\x8b":
        return TRACE if _format(_first_line(path)) == FORMAT else "gzipped: unpack it first"
    if head[:4] == b"PAR1":
        names = _parquet_columns(path)
        return "a damaged Parquet file" if names is None else _of_columns(names)
    if (header := _safetensors_header(path, head)) is not None:
        return _of_tensors(header)
    for mark, kind in _MAGIC:
        if mark.match(head):
            return kind
    return _of_text(path, head)


def explained(error: UserError) -> str:
    """The error's sentence; where a file is of another kind than was wanted, with what it is."""
    sentence = str(error)
    if not isinstance(error, WrongKind) or error.path is None:
        return sentence
    with suppress(UserError):
        kind = kind_of(error.path)
        return sentence if kind in (EMPTY, TEXT) else f"{sentence}; it seems to be {kind}"
    return sentence


def _of_folder(path: Path) -> Kind:
    found = (kind for name, kind in _FOLDERS.items() if any(path.glob(name)))
    return next(found, "a folder of other things")


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────


_PICTURE, _SOUND = "a picture", "sound or a film"
_PICKLE = "a pickle, which could run programs and is never opened: save it as .safetensors"
_ZIP, _PACKED = "a zip file: unpack it first", "a packed file: unpack it first"
_MAGIC: tuple[tuple[re.Pattern[bytes], Kind], ...] = tuple(
    (re.compile(mark, re.DOTALL), kind)
    for mark, kind in (
        (rb"%PDF-", "a PDF"),
        (rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a|BM.{4}\0{4}|II\*\0|MM\0\*", _PICTURE),
        (rb"RIFF.{4}WEBP|.{4}ftyp(avif|heic|mif1)|\0\0\x01\0.\0", _PICTURE),
        (rb"RIFF.{4}WAVE|ID3|OggS|fLaC|.{4}ftyp|\x1aE\xdf\xa3", _SOUND),
        (rb"PK\x03\x04.*?/data\.pkl", _PICKLE),  # as torch.save writes it
        (rb"PK\x03\x04.*?\.npy", "arrays of NumPy (.npz)"),
        (rb"PK\x03\x04.*?(word/|xl/|ppt/|\[Content_Types\])", "a file of an office program"),
        (rb"PK[\x03\x05\x07]", _ZIP),
        (rb"\x80[\x02-\x05][\x00-\xff]", _PICKLE),
        (
            rb"GGUF",
            "a model as GGUF: `model doctor FILE` says whether it is a target, for "
            "`run --model FILE`, or a drafter, for `--drafter FILE`",
        ),
        (rb"\x93NUMPY", "an array of NumPy (.npy)"),
        (rb"\x89HDF\r\n", "an HDF5 file"),
        (rb"SQLite format 3\0", "a database of SQLite"),
        (rb"BZh\d|\xfd7zXZ\0|7z\xbc\xaf|\x28\xb5\x2f\xfd|Rar!", _PACKED),
        (rb".{257}ustar", _PACKED),
        (rb"\x7fELF|MZ(?=.{0,62}\0)|\xca\xfe\xba\xbe|\xcf\xfa\xed\xfe", "a program"),
    )
)


def _first_line(path: Path) -> bytes:
    """The first line of a file, unpacked within the limits; empty for a damaged one."""
    with suppress(UserError, OSError), open_regular(path) as file:
        return next(lines(file, path.name), b"")
    return b""


def _format(line: bytes) -> object:
    with suppress(UserError):
        value = parse_json(line, "the line")
        return value.get("format") if isinstance(value, dict) else None
    return None


def _safetensors_header(path: Path, head: bytes) -> dict[str, Any] | None:
    """The header of a safetensors file; None: it is another file."""
    size = int.from_bytes(head[:8], "little")
    if head[8:9] != b"{" or not 2 <= size <= MAX_BYTES:
        return None
    with suppress(UserError, OSError), open_regular(path) as file:
        value = parse_json(file.read(8 + size)[8:], "the header")
        return value if isinstance(value, dict) else None
    return None


def _of_tensors(header: dict[str, Any]) -> Kind:
    metadata = header.get("__metadata__")
    told = metadata.get("format") if isinstance(metadata, dict) else None
    if isinstance(told, str) and told in _FORMATS:
        return _FORMATS[told]
    if {"token_ids", "hidden_states"} <= header.keys():
        return "a text with hidden states, which `diagnose --states` and `calibrate` read"
    return WEIGHTS


# ── tables ───────────────────────────────────────────────────────────────────────────────────────


_TABLES: tuple[tuple[set[str], Kind], ...] = (  # as CSV or JSON
    ({"tokens", "ms"}, STEPS),
    ({"acc_0"}, "a trainer's log, which `report --trained` reads"),
    ({"full_acc_0"}, "a trainer's log, which `report --trained` reads"),
)
_COLUMNS = (
    ({"seed", "series", "depth", "continuations", "tvd", "coverage_1"}, CALIBRATION),
    ({"series", "depth", "tvd_sd"}, "curves of `calibrate`: open its calibration.parquet"),
    ({"run", "method", "prompt_hash", "acceptance_lengths"}, GRID),
    ({"round", "index", "position", "committed"}, "a table of rounds: open its trace"),
    ({"round", "index", "row", "parents"}, "a table of nodes: open its trace"),
    *_TABLES,
)


# Of the fields that samples are read by: "text" and the like are in other files, too.
_PROMPTS = tuple(
    ({name}, PROMPTS)
    for name in ("question", "instruction", "problem", "question_content", *CHAT_FIELDS, *TURNS)
)


def _of_columns(names: Iterable[str]) -> Kind:
    known = list(names)
    for wanted, kind in (*_COLUMNS, *_PROMPTS):
        if wanted <= set(known):
            return kind
    shown = ", ".join(visible(name, 30) for name in known[:SHOWN])
    more = ", …" if len(known) > SHOWN else ""
    return f"a table of another kind ({shown}{more})"


def _parquet_columns(path: Path) -> list[str] | None:
    """The columns of a Parquet file; None: it is damaged."""
    try:
        from analysis.table_files import open_parquet

        with open_parquet(path) as found:
            return list(found.schema_arrow.names)
    except Exception:  # pyarrow raises anything on damaged files
        return None


# ── JSON and other text ──────────────────────────────────────────────────────────────────────────


_FORMATS = {
    FORMAT: TRACE,
    "draftscope-collected": COLLECTED,
    "draftscope-cost": COST,
    "draftscope-accuracy": "the accuracy of a training, which `report --trained` reads",
    "draftscope-graph": "a draft graph, which `denoise --graph` reads",
    "draftscope-ngram": "a store of n-grams, which `model ngram` made for DART",
    "draftscope-sweep": "the plan of a grid: its results.parquet opens under Results",
}
BENCHED = (
    "a result of SGLang's bench_serving, whose accept_length is a mean of the server without the "
    "counts behind it: its responses (meta_info) and its log have them"
)
_KEYS = (
    ({"accept_length", "output_throughput"}, BENCHED),
    ({"round_trees"}, TREES),
    ({"rows", "timed", "max_new_tokens"}, TABLE),
    ({"rows", "roofline", "repeats"}, "a result of `bench --json`"),
    ({"wiring", "checkpoint", "code"}, "a result of `diagnose --json`"),
    ({"engine", "by_depth", "accepted_of_drafted"}, "a result of `trace import --json`"),
    ({"prompt", "method", "token_ids"}, "a result of `run --json`: --trace keeps its trees"),
    ({"prompt", "nfe"}, "a result of `denoise run --json`: --trace keeps its calls"),
    ({"method", "budget", "exact"}, "a result of `whatif --json`"),
    ({"prompts", "cells"}, "a result of `denoise --json`"),
    ({"traceEvents"}, "a timeline: Perfetto (ui.perfetto.dev) draws it"),
    ({"weight_map"}, WEIGHTS),
    ({"nbformat"}, "a notebook"),
    ({"added_tokens", "model"}, "a tokenizer"),
    *_TABLES,
    ({"model_type"}, CONFIG),
    ({"architectures"}, CONFIG),
    ({"speculators_model_type"}, CONFIG),
    ({"choices"}, "an OpenAI server's response without counts of its drafts"),
    *_PROMPTS,
    ({"custom_id", "body"}, PROMPTS),
)
_OFF = "so speculative decoding was off, or its statistics were"
_TEXT: tuple[tuple[re.Pattern[str], Kind], ...] = tuple(  # the surest sign first
    (re.compile(mark), says)
    for mark, says in (
        (rf'^\s*\{{.{{0,200}}"{FORMAT}"', f"{TRACE}, and is damaged"),
        (
            r"Speculative metrics: ",
            "a log of vLLM before its V1 engine, which also counted tokens after a rejection as "
            "accepted: no acceptance by place follows from it",
        ),
        (r'^\{.*"output_throughput": .*"accept_length": ', BENCHED),  # it may hold Infinity
        (
            r"Per-position acceptance \(%\)",
            "what `vllm bench serve` prints: give the JSON file of its --save-result",
        ),
        (
            "DiffusionDecoding metrics: |^vllm:diffusion_",
            "vLLM's log of a diffusion model, which drafts no tokens",
        ),
        ("^vllm:", f"vLLM's metrics without vllm:spec_decode_…, {_OFF}"),
        ("^sglang:", f"SGLang's metrics without spec_accept_length, {_OFF}"),
        ("^llamacpp:", f"llama.cpp's metrics without spec_decode_…, {_OFF}"),
        ("^# (?:HELP|TYPE) ", "a metrics page of another program"),
        (
            r"Avg generation throughput: ",
            f"vLLM's log without a line 'SpecDecoding metrics', {_OFF}",
        ),
        ("Decode batch", f"SGLang's log without 'accept len', {_OFF}"),
        (
            r"\bslot +\w+: |eval time =",
            f"llama.cpp's log without a line 'draft acceptance', {_OFF}",
        ),
        (r"(?i)^\s*(?:<\?xml[^>]*>\s*)?<svg", _PICTURE),
        (r"<graphml", "a tree as GraphML, which other programs read: open its trace"),
        (r"^(?:strict )?(?:di)?graph\b.*\{", "a tree for Graphviz: open its trace"),
        (r"· Draftscope</title>|<title>Draftscope", "a page of ours: a browser opens it"),
        (r"(?i)^\s*<(?:!doctype|html)", "a web page"),
        ("\x00", "a binary file"),
    )
)


def _of_text(path: Path, head: bytes) -> Kind:
    found = None
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        found = _of_json(path)
        # a log may be an object a line, whose texts have the counts
        sure = found != JSON or path.suffix in (".json", ".jsonl") or _is_json(path)
        if found is not None and sure:
            return found
    if path.suffix in (".csv", ".tsv"):
        return _of_table(path, head.split(b"\n", 1)[0].decode("utf-8-sig", "replace").strip())
    kind = _of_lines(path)
    return found if found and kind == TEXT else kind


def _of_table(path: Path, first: str) -> Kind:
    """The kind of a table by its first line. What the page opens has commas."""
    kind = _of_columns(name.strip('" ') for name in re.split("[,\t]", first))
    if kind in (GRID, CALIBRATION) and (path.suffix != ".csv" or "\t" in first):
        return "a table with tabs: save it with commas, as .csv"
    return kind


def _is_json(path: Path) -> bool:
    """Whether all of a file is one JSON value."""
    with suppress(UserError):
        read_json(path)
        return True
    return False


def _of_json(path: Path) -> Kind | None:
    """The kind of a JSON file, or of one with a value a line; None: it is neither."""
    values: list[Callable[[], Any]] = [
        lambda: parse_json(_first_line(path), "the line"),
        lambda: read_json(path),
    ]
    for read in values if path.suffix == ".jsonl" else reversed(values):
        with suppress(UserError):
            return _of_value(read(), path.name)
    return None


def _of_value(value: Any, name: str) -> Kind:
    if is_chat(value):
        return PROMPTS
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, dict):
        return JSON
    told = value.get("format")
    if isinstance(told, str) and told.startswith("draftscope-"):
        return _FORMATS.get(told, CONFIG)
    value = response_of(value)
    if holds_counts(value):
        return COUNTS
    found = (kind for keys, kind in _KEYS if keys <= value.keys())
    other = CONFIG if name == "config.json" else JSON
    return next(found, other)


def _of_lines(path: Path) -> Kind:
    best = len(_TEXT)
    for number, (_, line) in enumerate(text_lines(path)):
        if forms_of(line):
            return COUNTS
        if number >= LOOKED_AT:
            continue
        best = next((n for n, (mark, _) in enumerate(_TEXT[:best]) if mark.search(line)), best)
    return _TEXT[best][1] if best < len(_TEXT) else TEXT
