"""The commands of `model`, one module each."""
