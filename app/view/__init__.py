"""Rounds and traces as people see them: what the page, the terminal, files and Learn draw."""
