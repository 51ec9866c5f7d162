"""Defects that are planted in the modules that decide, to see whether the tests catch them.

    python -m tests.defects              plants every one: the tests named beside it must fail
    python -m tests.defects walk draft   those of files, or with names, that hold one of the words
    python -m tests.defects --check      says which no longer apply; runs no tests
    python -m tests.defects --record     writes what is found into caught.tsv
    python -m tests.defects --new        those that have no line there yet

``list.toml`` has a table for each module, of Python or of app/web: its file, the tests that should
notice, and its defects, each a name, the text in the file and what stands there instead. The text
must occur once; white space in it counts as any white space. Each defect is planted in a copy of
the tree, never in the tree itself. ``caught.tsv`` holds the first test that failed for each.

Exit code 1: a defect no longer applies, or survived although caught.tsv says that it was caught.
"""
