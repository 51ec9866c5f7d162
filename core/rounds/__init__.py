"""A round as plain data: what was drafted, what the target said, what was measured.

Light: numpy only. Everything that decodes, logs, draws or compares rounds imports these types, and
they import nothing of the project.
"""
