"""The course: its chapters, made of three recorded runs and of measurements over many prompts."""

from __future__ import annotations

from app.learn import basics, graph, measured, nested, verify, weighed
from app.learn.material import Material
from app.learn.words import Json


def course(material: Material | None = None) -> Json:
    """Trees and chapters, as plain JSON."""
    material = material or Material.shipped()
    methods = (nested.nested, weighed.two_scores, graph.spiffys_graph, measured.measured)
    chapters = [make(material) for make in (*basics.CHAPTERS, *verify.CHAPTERS, *methods)]
    return {"trees": {**material.trees(), "graph": graph.view()}, "chapters": chapters}
