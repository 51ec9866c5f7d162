"""Learn: a guided course on shipped traces. Light: neither torch nor numba."""
