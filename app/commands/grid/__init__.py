"""The commands of `grid`, one module each."""
