"""Sorts of tokens, to show where a drafter is weak. Light: no libraries.

The sort is read off the token's own text alone, so it needs no tokenizer and works on any trace.
A word at the start of a line or text counts as a continuation: its token carries no blank.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

SPECIAL, NEWLINE, SPACE, NUMBER = "special", "newline", "whitespace", "number"
START, INSIDE = "word start", "word continuation"
PUNCTUATION, SYMBOL, OTHER, UNKNOWN = "punctuation", "code symbol", "other", "unknown"

CLASSES = (START, INSIDE, NUMBER, PUNCTUATION, SYMBOL, NEWLINE, SPACE, SPECIAL, OTHER, UNKNOWN)

# <|im_end|>, <s>, </s>, <pad>, <repo_name>, [MASK]; not HTML's <div>
_SPECIAL = re.compile(
    r"<\|.*\|>|</?(?:s|pad|unk|mask|eos|bos|eot|sep|cls)>|<[a-z]+_[a-z_]+>"
    r"|\[(?:MASK|PAD|CLS|SEP|UNK)\]",
    re.DOTALL,
)
_MARKS = frozenset(".,;:!?'\"()-…’‘“”–—¿¡«»、。，：；！？（）「」")
_CODE = frozenset("{}[]<>=+*/\\|&^%$#@~_`")


def token_class(text: str | None) -> str:
    """Find the token's class in ``CLASSES``; None is a token whose text the record does not know.

    special            a control token such as <|im_end|> or </s>
    newline            blanks with a line break among them
    whitespace         other blanks
    number             digits, with any blanks, signs or separators around them
    word start         holds a letter and begins with a blank
    word continuation  holds a letter and does not
    punctuation        marks of prose, brackets ( ) included
    code symbol        other marks, at least one of { } [ ] < > = + * / \\ | & ^ % $ # @ ~ _ `
    other              anything else: emoji, half a character
    """
    if text is None:
        return UNKNOWN
    if _SPECIAL.fullmatch(text):
        return SPECIAL
    if not text or text.isspace():
        return NEWLINE if "\n" in text or "\r" in text else SPACE
    body = text.strip()
    if any(c.isalpha() for c in body):
        return START if text[0].isspace() else INSIDE
    if any(c.isdigit() for c in body):
        return NUMBER
    if any(c in _CODE for c in body):
        return SYMBOL
    return PUNCTUATION if all(c in _MARKS or c.isspace() for c in body) else OTHER


def script(text: str | None) -> str:
    """The script of most of a text's letters, as Unicode names it ("latin", "cjk", "cyrillic",
    "hiragana", …); "" for a text without letters."""
    names = (unicodedata.name(c, "") for c in text or "" if c.isalpha())
    counts = Counter(name.split(" ")[0].split("-")[0].lower() for name in names if name)
    return counts.most_common(1)[0][0] if counts else ""
