"""The course: its chapters, made of recorded runs and of measurements over many prompts."""

from __future__ import annotations

import shlex

from app.learn import graph, guesses, measured, nested, scores, verdict, whole_path
from app.learn.material import MAIN, WHOLE_PATH, Material
from app.learn.words import Json
from core.traces.schema import Header

CHAPTERS = (
    guesses.a_round, guesses.marginals, guesses.best_first, verdict.one_pass, verdict.the_walk,
    verdict.the_cache, nested.nested, whole_path.whole_path, scores.two_scores,
    graph.spiffys_graph, measured.measured,
)  # fmt: skip
RUNS = (MAIN, MAIN, MAIN, MAIN, MAIN, MAIN, "treeflash", WHOLE_PATH, "dart")  # of the first ones


def course(material: Material | None = None) -> Json:
    material = material or Material.shipped()
    chapters = [make(material) for make in CHAPTERS]
    for chapter, name in zip(chapters, RUNS, strict=False):
        chapter["run"] = _again(material.traces[name].header)
    chapters[0]["steps"][0]["run"] = _again(material.timed[1].header)  # the race has its own prompt
    return {"trees": {**material.trees(), "graph": graph.view()}, "chapters": chapters}


def _again(header: Header) -> Json:
    """A run's settings as Run's form has them, and the command that makes it again."""
    budget, tokens = header.settings["budget"], header.settings["max_new_tokens"]
    words = ("python", "-m", "app", "run", header.method, "--budget", str(budget))
    words += ("--max-new-tokens", str(tokens), "--prompt", header.prompt_text)
    return {
        "command": shlex.join(words),
        "filling": {
            "prompt": header.prompt_text,
            "0.method": header.method,
            "0.budget": budget,
            "max_new_tokens": tokens,
            **header.settings["sampling"],
        },
    }
