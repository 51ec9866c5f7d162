"""The studio: a Gradio page around one tree view. ``serve`` opens it, ``build`` makes the page.

Importing this never imports torch: the model loads in the background, behind a visible page.
"""

from app.studio.quickly import without_stubs

without_stubs()  # before anything imports gradio

from app.studio.page import build, serve  # noqa: E402

__all__ = ["build", "serve"]
