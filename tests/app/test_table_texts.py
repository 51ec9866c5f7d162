"""Tables as Markdown and LaTeX. ``pasted.json`` has cells as the page writes them, too."""

import json

import pytest

from app.table_texts import FORMS, TableForm
from tests import GOLDEN

PASTED = json.loads((GOLDEN / "pasted.json").read_text("utf-8"))
CASES = [(form, *case) for form, cases in PASTED.items() for case in cases]
TRACE = "assets/traces/chat-caddtree.jsonl.gz"


@pytest.mark.parametrize(("form", "text", "cell"), CASES)
def test_a_cell_is_written_as_the_page_writes_it(form: str, text: str, cell: str):
    made = FORMS[form.lower()](["word"], [[text]], ["word"])
    end = f"| {cell} |\n" if form == "Markdown" else f"{cell} \\\\\n\\hline\n\\end{{tabular}}\n"
    assert made.endswith(f"\n{end}")


@pytest.mark.parametrize("form", FORMS)
def test_a_cell_stays_in_its_line(form: TableForm):
    whole, broken = (FORMS[form](["a"], [[cell]], []) for cell in ("a b", "a\r\nb"))
    assert broken == whole


def test_columns_keep_their_sides_and_a_bar_is_left_out():
    table = ["", "τ C₁₆", " "], [["plain", "1.00", "▏"]], ["", " "]
    assert FORMS["markdown"](*table) == "\n|  | τ C₁₆ |\n| --- | ---: |\n| plain | 1.00 |\n"
    assert FORMS["latex"](*table) == (
        "\\begin{tabular}{lr}\n\\hline\n & $\\tau$ C$_{16}$ \\\\\n\\hline\n"
        "plain & 1.00 \\\\\n\\hline\n\\end{tabular}\n"
    )


def test_a_report_has_every_table_whole_in_it(call):
    code, written, _ = call("report", TRACE, "--tables", "latex")
    _, read, _ = call("report", TRACE)
    tables = written.split("\\begin{tabular}")[1:]
    assert code == 0 and tables
    for table in tables:
        assert table.count("\\hline") == 3 and "\\end{tabular}\n" in table
        assert not set(table.split("\\end{tabular}")[0]) & set("−τ≥÷₁█▏")
    words = [line for text in written.split("\\begin{tabular}") for line in
             text.split("\\end{tabular}")[-1].splitlines() if line]  # fmt: skip
    assert all(line.startswith("% ") for line in words)  # else LaTeX would read it
    sentences = [line.removeprefix("% ") for line in words if line.endswith(".")]
    assert sentences and set(sentences) <= set(read.splitlines())
