"""Decoding: the loop that serves every autoregressive method, and the engine that starts runs.

decode   the loop: a generator of rounds
request  what a person asks for, as plain data; light
engine   a loaded target with its drafters
"""
