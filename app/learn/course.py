"""The course: its chapters, made of four recorded runs and of measurements over many prompts."""

from __future__ import annotations

from app.learn import graph, guesses, measured, nested, scores, verdict, whole_path
from app.learn.material import Material
from app.learn.words import Json

CHAPTERS = (
    guesses.a_round, guesses.marginals, guesses.best_first, verdict.one_pass, verdict.the_walk,
    verdict.the_cache, nested.nested, whole_path.whole_path, scores.two_scores,
    graph.spiffys_graph, measured.measured,
)  # fmt: skip


def course(material: Material | None = None) -> Json:
    """Trees and chapters, as plain JSON."""
    material = material or Material.shipped()
    chapters = [make(material) for make in CHAPTERS]
    return {"trees": {**material.trees(), "graph": graph.view()}, "chapters": chapters}
