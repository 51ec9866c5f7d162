"""N-gram counts over token ids: building them, one small file of them, and lookups in µs.

store      the file, and the lookup that tree search calls from numba
build      documents → store
trie       DART's released ``.trie`` format → store
documents  text and JSON lines → documents
"""

from core.ngram.build import BuildOptions, build_store
from core.ngram.store import Arrays, NgramStore, lookup, lookup_each
from core.ngram.trie import read_trie

__all__ = [
    "Arrays",
    "BuildOptions",
    "NgramStore",
    "build_store",
    "lookup",
    "lookup_each",
    "read_trie",
]
