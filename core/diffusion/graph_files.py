"""Draft graphs as files, and the graphs that ship. Light: never torch."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from core import ASSETS
from core.diffusion.draft_graph import MAX_FORMULAS, DraftGraph, make_graph
from core.diffusion.pace import ONE_BY_ONE, Pace
from core.errors import UserError
from core.json_input import read_json
from core.models import embedded

FORMAT = "draftscope-graph"
VERSION = 1


def load_graph(wanted: str, model: str, pace: Pace) -> DraftGraph:
    """The draft graph in a file, or the shipped one of D nodes. Raises UserError."""
    if wanted.isascii() and wanted.isdecimal():
        return shipped_graph(int(wanted), model, pace)
    return read_graph(Path(wanted).expanduser())


def shipped_graph(nodes: int, model: str, pace: Pace) -> DraftGraph:
    """The graph of this size that ships for the model: the one for this pace, else for one token a
    step, which any pace can use (§5.2). Raises UserError when there is none."""
    if not 1 <= nodes <= MAX_FORMULAS:
        raise UserError(f"a draft graph has 1 to {MAX_FORMULAS} nodes, not {nodes}")
    folder = graphs_folder(model)
    for name in dict.fromkeys((pace.name, ONE_BY_ONE.name)):
        file = folder / f"{name}-d{nodes}.json" if folder else None
        if file is not None and file.is_file():
            return read_graph(file)
    raise UserError(
        f"no draft graph of {nodes} nodes ships for {model!r}: make one with find-graph "
        "and name its file"
    )


def graphs_folder(model: str) -> Path | None:
    """The folder of the graphs that ship for a model: the embedded one, or one known by its hub id.

    None for a model in a folder of its own.
    """
    if model == embedded.NAME:
        return ASSETS / "models" / model / "graphs"
    if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", model, re.ASCII):
        return ASSETS / "models" / "graphs" / model.replace("/", "--")
    return None


def graph_to_json(graph: DraftGraph) -> dict[str, Any]:
    """A graph as a trace's header holds it."""
    formulas = [[list(pair) for pair in formula] for formula in graph.formulas]
    return {"name": graph.name, "pace": graph.pace.to_json(), "formulas": formulas}


def write_graph(path: Path, graph: DraftGraph) -> None:
    """Write a file that a person can read, one formula a line. Raises UserError."""
    lines = ",\n".join(f"    {json.dumps([list(pair) for pair in f])}" for f in graph.formulas)
    provenance = json.dumps(dict(graph.provenance), indent=2).replace("\n", "\n  ")
    text = (
        f'{{\n  "format": "{FORMAT}",\n  "version": {VERSION},\n'
        f'  "pace": {json.dumps(graph.pace.to_json())},\n  "formulas": [\n{lines}\n  ],\n'
        f'  "provenance": {provenance}\n}}\n'
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as error:
        raise UserError(f"the draft graph {path} cannot be written: {error.strerror}") from None


def read_graph(path: Path) -> DraftGraph:
    """Raises UserError, with one sentence, for a file that is not a draft graph."""
    value = read_json(path)
    try:
        return graph_from_json(value, path.stem)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def graph_from_json(value: Any, name: str = "") -> DraftGraph:
    """Raises UserError for what is not a draft graph of a version this program reads."""
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise UserError("not a draft graph (no such format name)")
    if value.get("version") != VERSION or isinstance(value.get("version"), bool):
        raise UserError(f"not a draft graph of version {VERSION}")
    raw, provenance = value.get("formulas"), value.get("provenance", {})
    if not isinstance(raw, list) or not all(isinstance(f, list) for f in raw):
        raise UserError("a draft graph's formulas are lists of [i, j]")
    if not 1 <= len(raw) <= MAX_FORMULAS:
        raise UserError(f"a draft graph has 1 to {MAX_FORMULAS} formulas, not {len(raw)}")
    if not all(_is_pair(pair) for formula in raw for pair in formula):
        raise UserError("a draft graph's formulas are lists of [i, j]")
    if not isinstance(provenance, dict):
        raise UserError("a draft graph's provenance is an object")
    formulas = [[(i, j) for i, j in formula] for formula in raw]
    return make_graph(formulas, _pace(value.get("pace")), name=name, provenance=provenance)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(v) is int for v in value)


def _pace(value: Any) -> Pace:
    if isinstance(value, dict) and len(value) == 1:
        tokens, threshold = value.get("tokens"), value.get("threshold")
        if type(tokens) is int:
            return Pace(tokens)
        if isinstance(threshold, (int, float)) and not isinstance(threshold, bool):
            return Pace(threshold=float(threshold))
    raise UserError('a draft graph\'s pace is {"tokens": k} or {"threshold": t}')
