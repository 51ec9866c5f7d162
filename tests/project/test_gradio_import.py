"""gradio's import leaves its editor stubs out, and is otherwise what it was."""

import subprocess
import sys

from tests import ROOT


def after(code: str) -> str:
    """Return the output of a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_no_stub_is_made_for_a_component_and_it_works(tmp_path):
    (tmp_path / "own.py").write_text(
        "import gradio as gr\n\n\nclass Own(gr.HTML):\n    EVENTS = [gr.events.Events.click]\n"
    )
    found = after(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import app.studio, own\n"
        "with own.gr.Blocks() as page:\n    part = own.Own('x'); part.click(lambda: None)\n"
        "print(len(page.blocks), len(page.fns))"
    )
    assert found.split() == ["1", "1"]
    assert not (tmp_path / "own.pyi").exists()


def test_gradio_still_has_what_is_left_out():
    found = after(
        "import app.studio.gradio_import as q, importlib, sys\n"
        "before = list(sys.meta_path)\nimport app.studio\n"
        "meta = importlib.import_module(q.MODULE)\n"
        "print(getattr(meta, q.STUBS).__module__, sys.meta_path == before)"
    )
    assert found.split() == ["app.studio.gradio_import", "True"]
