"""PDF files that the tests look into."""

from __future__ import annotations

import io

from pypdf import PageObject, PdfReader


def whole(data: bytes) -> PageObject:
    """The one page of a figure, of whose fonts each is embedded and holds what is used of it."""
    (page,) = PdfReader(io.BytesIO(data)).pages
    fonts = list(_fonts(page))
    assert fonts
    for font in fonts:
        (inner,) = font.get("/DescendantFonts", [font])
        described = inner.get_object()["/FontDescriptor"]
        assert {"/FontFile", "/FontFile2", "/FontFile3"} & set(described)
        assert str(font["/BaseFont"])[7] == "+"  # "/ABCDEF+Name": a part of the font
        assert "/ToUnicode" in font  # words can be searched
    return page


def _fonts(holder):
    """The fonts of a page, and of the forms within it."""
    resources = holder.get("/Resources", {})
    for font in resources.get("/Font", {}).values():
        yield font.get_object()
    for form in resources.get("/XObject", {}).values():
        yield from _fonts(form.get_object())
