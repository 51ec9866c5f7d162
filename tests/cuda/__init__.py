"""Checks that need a CUDA device; ``python -m pytest tests/cuda`` skips them where there is none.

They need torch, transformers, pytest and hypothesis alone; ``python -m tests.cuda.speed`` too.
"""
