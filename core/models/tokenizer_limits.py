"""How much longer a tokenizer may make a text: a small file may ask for any length.

Forty replacements of "a" by "aa" in a row make 10^12 letters of one, and the tokenizers library
takes all memory and ends the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.errors import UserError
from core.json_input import parse_json

TIMES = 64  # longer; published ones at most double a text ("▁" for a blank)
ADDED = 4096  # characters or tokens beside the text
PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


def check_tokenizer(tokenizer: Any, name: str) -> None:
    """Raises UserError for a loaded tokenizer that may make a text much longer."""
    made = getattr(tokenizer, "backend_tokenizer", None)
    for part in PARTS:
        if (found := getattr(made, part, None)) is None:
            continue
        times, added = _growth(parse_json(found.__getstate__(), f"the tokenizer of {name!r}"))
        if times > TIMES or added > ADDED:
            raise UserError(
                f"the tokenizer of {name!r} may make a text too long: its {part} takes it "
                f"{times:.3g} times and adds {added:.3g}, where {TIMES} and {ADDED} are allowed"
            )


def _growth(part: Any) -> tuple[float, float]:
    """How many times longer a part makes a text at most, and how much it adds to one."""
    if not isinstance(part, Mapping):
        return 1.0, 0.0
    match part.get("type"):
        case "Sequence":
            return _one_after_the_other(part)
        case "Replace":
            content, pattern = str(part.get("content", "")), part.get("pattern", {})
            found = pattern.get("String") if isinstance(pattern, Mapping) else None
            # An expression may match nothing at all, between any two letters.
            return (max(1.0, len(content) / len(found)) if found else 1.0 + len(content)), 0.0
        case "Prepend":
            return 1.0, len(str(part.get("prepend", "")))
        case "TemplateProcessing":
            return _template(part)
    return 1.0, 0.0


def _one_after_the_other(part: Mapping[str, Any]) -> tuple[float, float]:
    times, added = 1.0, 0.0
    for name in ("normalizers", "pretokenizers", "processors", "decoders"):
        for inner in part.get(name) or ():
            more, beside = _growth(inner)
            times, added = times * more, added * more + beside
    return times, added


def _template(part: Mapping[str, Any]) -> tuple[float, float]:
    """A template names the text and special tokens, each of which is several ids."""
    ids = {
        name: len(each.get("ids", ())) for name, each in (part.get("special_tokens") or {}).items()
    }
    pieces = part.get("single") or ()
    texts = sum("Sequence" in piece for piece in pieces)
    named = (piece["SpecialToken"].get("id") for piece in pieces if "SpecialToken" in piece)
    return max(1.0, float(texts)), float(sum(ids.get(each, 1) for each in named))
