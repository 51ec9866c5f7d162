"""Learn: a guided course on shipped traces. Read once, it then plays in the browser."""

from __future__ import annotations

from functools import cache

from app.learn.course import course
from app.page_files import LEARN
from app.studio.components import Studio, Tab, view
from app.studio.questions import Question, Route


def build(studio: Studio) -> None:
    """The course as one view; it needs neither a model nor the runs."""
    made = cache(course)
    view("learn", "ds-learn", {"course": Route(Question, lambda _: made())})


TAB = Tab("learn", "Learn", build, LEARN)
