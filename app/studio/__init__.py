"""The studio: a Gradio page around one tree view.

server      the page with its tabs, and what a server of it answers; served: its socket and thread
guard       who may talk to it, by access; faults: requests that are too large, or break something
page        Gradio's page, whose failures are sentences; questions: what a page's question may hold
tabs        a module per tab: its form, its view, what it alone may ask
components  Gradio parts that the tabs are made of; forms: the inputs of Run and Compare
methods     the methods and options that a page offers, and the requests made from them
routes      what a page may ask, and the events by which it hears of runs; files: files in and out
runs        the worker, the queue and the runs on view; run: one of them
engine      the model that the worker decodes with; background: its work that has no rounds
examples    what there is to open; shipped: prompts and example runs, by the methods' names

Importing this never imports torch: the model loads in the background, after the page is there.
"""

from app.studio.gradio_import import without_stubs

without_stubs()  # before anything imports gradio

from app.studio.server import build, serve  # noqa: E402

__all__ = ["build", "serve"]
