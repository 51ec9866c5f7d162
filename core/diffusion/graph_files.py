"""Draft graphs as files, and the graphs that ship. Light: never torch."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from core import ASSETS
from core.diffusion.draft_graph import MAX_FORMULAS, DraftGraph, make_graph
from core.diffusion.pace import ONE_BY_ONE, Pace
from core.errors import UserError, writing
from core.files import replacing
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
        f"no draft graph of {nodes} nodes ships for {model!r}: make one with `model graph` "
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
    with writing(f"the draft graph {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write_text(text, "utf-8")


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
    if value.get("version") != VERSION or isinstance(value["version"], bool):
        raise UserError(f"not a draft graph of version {VERSION}")
    try:
        formulas = [[(_whole(i), _whole(j)) for i, j in f] for f in value["formulas"]]
        pace, provenance = _pace(**value["pace"]), {**value.get("provenance", {})}
    except (KeyError, OverflowError, TypeError, ValueError):
        raise UserError(
            "a draft graph has formulas, which are lists of [i, j], a pace, which is "
            '{"tokens": k} or {"threshold": t}, and maybe a provenance'
        ) from None
    return make_graph(formulas, pace, name=name, provenance=provenance)


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _pace(tokens: Any = None, threshold: Any = None) -> Pace:
    if threshold is None:
        return Pace(_whole(tokens))
    if tokens is not None or type(threshold) not in (int, float):
        raise TypeError
    return Pace(threshold=float(threshold))
