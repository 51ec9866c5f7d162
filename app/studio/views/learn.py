"""Learn: a guided course on shipped traces. Read once, it then plays in the browser."""

from __future__ import annotations

from functools import cache
from typing import Any

from app.learn.course import course
from app.studio.context import Context
from app.studio.scope import component

TITLE = "Learn"
SCRIPTS = ("tree.js", "save.js", "learn.js", "learnmount.js")


def build(context: Context) -> None:
    """The course as one component; it neither runs a model nor asks the desk for anything."""
    made = cache(course)

    def course_(asked: dict[str, Any]) -> dict[str, Any]:
        return made()

    course_.__name__ = "course"  # the name the page asks by
    component("ds-learn", SCRIPTS, [course_])
