"""Traces: a run as a log file, one JSON line per round. Light: never torch.

``NAME.jsonl`` or ``NAME.jsonl.gz``: a header, then one self-contained line per round, flushed as it
is written, then a footer. A file without a footer was interrupted and still opens. Nothing in a
trace is ever executed: it holds numbers and text only. ``docs/trace.md`` is the contract.

schema  header, trace and limits
writer  rounds → lines
reader  lines → rounds, every shape, range and reference checked
fields  one line's fields, each checked as it is taken
"""
