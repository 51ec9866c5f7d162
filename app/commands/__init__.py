"""One module per command: ``add_arguments(parser)`` and ``main(args) -> int``.

Nothing here imports torch at the top: a command's help must not wait for it.
"""
