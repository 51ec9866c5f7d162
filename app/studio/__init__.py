"""The studio: a Gradio page around one tree view.

server      the page with its tabs, and the server around it
tabs        a module per tab: its form, its view, what it may ask
forms       the forms of Run and Compare; methods: the methods and options they offer
routes      what a page may ask; records and files: tables and files as answers
runs        the worker, the queue and the runs on view; engine: the model it decodes with
examples    what there is to open; shipped: the documents of the example runs
components  Gradio parts that the tabs are made of

Importing this never imports torch: the model loads in the background, after the page is there.
"""

from app.studio.gradio_import import without_stubs

without_stubs()  # before anything imports gradio

from app.studio.server import build, serve  # noqa: E402

__all__ = ["build", "serve"]
