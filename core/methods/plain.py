"""Plain autoregressive decoding: one token per forward."""

from core.methods.method import Method

METHOD = Method("Plain", budget=1, about="one token per forward: what every method must equal")
