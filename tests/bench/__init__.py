"""Measurements, run by hand: they print numbers and assert none (a busy machine is not a bug)."""
