"""Gradio parts that the tabs are made of: mounted views, uploads, stop buttons.

A view is drawn by ``app/web``. Gradio evaluates templates as code, so theirs is constant: no text
of a model, a file or a person is ever in it. What changes comes through ``value`` (tickets, or
a sentence to show) and through routes, and the scripts write it as text nodes only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.utils import get_upload_folder

from analysis.kinds import explained
from app.page_files import css, joined
from app.studio.examples import Examples
from app.studio.files import remove_leftovers, uploaded
from app.studio.methods import Methods
from app.studio.questions import Route, Upload
from app.studio.routes import Routes, named
from app.studio.runs import Runs
from core.errors import UserError

QUIET: dict[str, Any] = {"show_progress": "hidden", "queue": False, "api_visibility": "private"}

SCRIPT, SHEET = "web/page.js", "web/page.css"  # all of app/web that the page needs, in one file
EARLY_HEAD = (
    f'<link rel="preload" as="style" href="{SHEET}"><script type="module" src="{SCRIPT}"></script>'
)
# When Gradio's own style is there, which ours changes. Not by its ``css``: that rewrites what
# passes through, and loses container queries.
HEAD = f'<link rel="stylesheet" href="{SHEET}">'
MODULES_JS = f"import(new URL('{SCRIPT}', document.baseURI)).then(({{modules}}) => modules)"
NO_TABS = (
    "early.js", "theme.js", "present.js", "goto.js", "memory.js", "form.js", "feed.js",
    "mounting.js", "options/view.js", "save/pdf.js",
)  # fmt: skip

# Constant, but for the name. Gradio knows a component's events by these calls of `trigger`.
MOUNT_JS = """const page = {
  element, props, server, upload, watch,
  running: () => trigger('running'), settled: () => trigger('settled'),
  refill: (asked) => trigger('refill', asked), tab: () => trigger('tab'),
};
%s.then((all) => all['mounting.js'].mounted(page, (it) => all['%s/view.js'].mount(it)));"""
TAB_JS = f"""() => {MODULES_JS}
  .then((all) => ({{__type__: 'update', selected: all['goto.js'].wantedTab()}}))"""
REMEMBER_JS = """(...values) => %s.then((all) => { all['memory.js'].remember(%s, %s, values); });"""
REFUSED_JS = f"""() => {MODULES_JS}
  .then((all) => all['feed.js'].whySilent()).then((error) => ({{error}}))"""
STOP_JS = "() => {{ window.dispatchEvent(new CustomEvent('draftscope-stop', {{detail: '{0}'}})); }}"


@dataclass(frozen=True)
class Studio:
    """The runs, methods and examples that every tab is built with."""

    runs: Runs
    methods: Methods
    tabs: gr.Tabs
    examples: Examples = field(default_factory=Examples)

    @property
    def routes(self) -> Routes:
        return Routes(self.runs, self.examples, self.methods)


@dataclass(frozen=True)
class Tab:
    """One tab.

    name    what addresses know it by, and its folder in app/web, whose view.js draws it
    build   adds its components
    styles  its own stylesheets, in that folder
    """

    name: str
    title: str
    build: Callable[[Studio], None]
    styles: tuple[str, ...] = ()

    @property
    def script(self) -> str:
        return f"{self.name}/view.js"

    @property
    def sheets(self) -> tuple[str, ...]:
        return tuple(f"{self.name}/{sheet}" for sheet in self.styles)


def script(tabs: Iterable[Tab]) -> str:
    """The page's script: a module that exports ``modules``, by path."""
    return joined(*NO_TABS, *(tab.script for tab in tabs), last="export { modules };")


def sheet(tabs: Iterable[Tab]) -> str:
    return css([each for tab in tabs for each in tab.sheets])


def view(name: str, elem_id: str, routes: Mapping[str, Route[Any]], value: Any = None) -> gr.HTML:
    """The view that ``mount`` of app/web/NAME/view.js makes, with the routes it may call.

    ``value`` of the tabs with a form: {"tickets": […]} to show runs, {"error": …} to
    say a sentence.

    Not a subclass: Gradio writes a .pyi file beside the source of every component class.
    """
    return gr.HTML(
        value=value or {},
        html_template='<div class="ds-mount"></div>',
        js_on_load=MOUNT_JS % (MODULES_JS, name),
        apply_default_css=False,
        server_functions=[named(route, answer) for route, answer in routes.items()],
        elem_id=elem_id,
    )


@dataclass(frozen=True)
class FormPlaces:
    """Where a form above its view goes: ``bar`` is always there, ``more`` opens below it."""

    bar: gr.Row
    more: gr.Column
    view: gr.Column


@contextmanager
def form_above_view(prefix: str) -> Iterator[FormPlaces]:
    """One bar with the prompt, a button that says the settings, Start and Stop; all settings open
    below it when somebody writes or presses that button (app/web/form.js)."""
    with gr.Column(elem_classes="ds-above"):
        with gr.Column(elem_classes="ds-panel ds-form", elem_id=f"{prefix}-panel"):
            bar = gr.Row(elem_classes="ds-bar", equal_height=False)
            # Columns that are cut at a height go on beside it: the box around them scrolls.
            with gr.Column(elem_classes="ds-settings", elem_id=f"{prefix}-settings"):
                more = gr.Column(elem_classes="ds-more")
        yield FormPlaces(bar, more, gr.Column(elem_classes="ds-main", min_width=280))


def connect_stop(view: gr.HTML, stop: gr.Button, prefix: str) -> None:
    """Stop tells the view, and can be pressed while the view says that it works.

    Within the page: of two requests to the server the second might be answered first.
    """
    stop.click(None, js=STOP_JS.format(prefix))
    for event, on in ((view.running, "true"), (view.settled, "false")):
        event(None, None, stop, js=f"() => ({{__type__: 'update', interactive: {on}}})", **QUIET)


def remember(prefix: str, inputs: Mapping[str, Component], also: Sequence[Any] = ()) -> None:
    """Keep the inputs' values in the browser when one of them changes, or ``also`` happens."""
    parts: list[Any] = list(inputs.values())
    changes = [part.change for part in parts if hasattr(part, "change")]
    words = REMEMBER_JS % (MODULES_JS, json.dumps(prefix), json.dumps(list(inputs)))
    gr.on([*changes, *also], None, parts, None, js=words, **QUIET)


def for_upload(answer: Callable[[Path], Any]) -> Route[Upload]:
    """The route for a file that a view sent (``sent`` of feed.js)."""
    return Route(Upload, lambda question: of_upload(question, answer))


def of_upload(
    question: Upload,
    answer: Callable[[Path], Any],
    several: Callable[[list[Path], int], Any] | None = None,
) -> Any:
    """The answer for a file that a view sent. A refusal says what the file seems to be, and not
    where it lies. ``several`` answers for ``paths``: files, and how many are gone."""
    folder = Path(get_upload_folder())
    remove_leftovers(folder)
    if several is not None and question.paths:
        files = list[Path]()
        for path in question.paths:
            with suppress(UserError):
                files.append(uploaded(path, folder))
        return several(files, len(question.paths) - len(files))
    file = uploaded(question.path, folder)
    try:
        return answer(file)
    except UserError as error:
        raise UserError(explained(error).replace(str(file), "this file")) from None
