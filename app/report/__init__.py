"""What ``report`` and its relatives print of traces: sections, gates and notes. Never torch."""
