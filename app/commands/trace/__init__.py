"""The commands of `trace`, one module each."""
