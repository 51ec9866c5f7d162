"""One module per command: a dataclass ``Options`` and ``main(options) -> int``.

Nothing here imports torch at the top: a command's help must not wait for it.
"""
