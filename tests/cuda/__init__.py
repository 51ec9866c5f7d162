"""Checks that need a CUDA device; ``python -m pytest tests/cuda`` skips them where there is none.

They need torch, transformers and pytest alone, and so does ``python -m tests.cuda.speed``.
"""
