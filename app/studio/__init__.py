"""The studio: a Gradio page around one tree view. ``serve`` opens it, ``build`` makes the page.

Importing this never imports torch: the model loads in the background, behind a visible page.
"""

from app.studio.page import build, serve

__all__ = ["build", "serve"]
