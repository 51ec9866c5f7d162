"""Draftscope for people: the command line and the studio."""
