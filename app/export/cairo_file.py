"""A script: the SVG of its standard input as a PDF, or as SVG of outlines, on its output.

``app.export.figure`` runs it as a process of its own. librsvg reads the SVG and cairo writes the
file: C libraries, called by their documented functions
(https://gnome.pages.gitlab.gnome.org/librsvg/Rsvg-2.0, https://www.cairographics.org/manual).
librsvg knows no address of the SVG, so it fetches nothing that the SVG names.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes.util import find_library

NAMES = (  # short name, then files where the system's search does not look
    ("rsvg-2", "librsvg-2-2", "librsvg-2.so.2", "/opt/homebrew/lib/librsvg-2.2.dylib"),
    ("cairo", "libcairo-2", "libcairo.so.2", "/opt/homebrew/lib/libcairo.2.dylib"),
)
POINT, DPI = 0.75, 96.0  # points of a pixel; pixels of an inch
LARGEST = 14_400.0  # points of a page's side that every reader opens
MOST = 64 << 20  # bytes of a file
ABSENT, BROKEN = 3, 4  # exit codes
WRITE_ERROR = 11  # cairo's

Pointer, Number = ctypes.c_void_p, ctypes.c_double
Writer = ctypes.CFUNCTYPE(ctypes.c_int, Pointer, ctypes.POINTER(ctypes.c_char), ctypes.c_uint)


class _Rectangle(ctypes.Structure):
    _fields_ = [(name, Number) for name in ("x", "y", "width", "height")]


def main(form: str) -> int:
    rsvg, cairo = (_library(*names) for names in NAMES)
    if rsvg is None or cairo is None:
        return ABSENT
    data = sys.stdin.buffer.read()
    create = _returns(rsvg.rsvg_handle_new_from_data, Pointer)
    handle = Pointer(create(data, ctypes.c_size_t(len(data)), None))
    if not handle:
        return BROKEN
    rsvg.rsvg_handle_set_dpi(handle, Number(DPI))
    width, height = Number(), Number()
    sized = rsvg.rsvg_handle_get_intrinsic_size_in_pixels
    if not sized(handle, ctypes.byref(width), ctypes.byref(height)):
        return BROKEN
    scale = min(POINT, LARGEST / max(width.value, height.value, 1))
    page = _Rectangle(0, 0, width.value * scale, height.value * scale)
    made = bytearray()

    @Writer
    def write(_: object, part: ctypes._Pointer[ctypes.c_char], size: int) -> int:
        made.extend(ctypes.string_at(part, size))
        return WRITE_ERROR if len(made) > MOST else 0

    surface_of = _returns(getattr(cairo, f"cairo_{form}_surface_create_for_stream"), Pointer)
    surface = Pointer(surface_of(write, None, Number(page.width), Number(page.height)))
    context = Pointer(_returns(cairo.cairo_create, Pointer)(surface))
    drawn = rsvg.rsvg_handle_render_document(handle, context, ctypes.byref(page), None)
    cairo.cairo_destroy(context)
    cairo.cairo_surface_finish(surface)
    if not drawn or cairo.cairo_surface_status(surface):
        return BROKEN
    sys.stdout.buffer.write(made)
    return 0


def _library(name: str, *files: str) -> ctypes.CDLL | None:
    for each in filter(None, [find_library(name), *files]):
        try:
            return ctypes.CDLL(each)
        except OSError:
            continue
    return None


def _returns(function: ctypes._NamedFuncPointer, kind: type) -> ctypes._NamedFuncPointer:
    function.restype = kind
    return function


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
