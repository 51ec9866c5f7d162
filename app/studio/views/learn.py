"""Learn: a guided course on shipped traces. Read once, it then plays in the browser."""

from __future__ import annotations

from functools import cache
from typing import Any

from app.learn.course import course
from app.studio.context import Context
from app.studio.scope import component

TITLE = "Learn"


def build(context: Context) -> None:
    """The course as one component; it neither runs a model nor asks the desk for anything."""
    made = cache(course)

    def course_(asked: dict[str, Any]) -> dict[str, Any]:
        return made()

    course_.__name__ = "course"  # the name the page asks by
    component("learn", "ds-learn", [course_])
