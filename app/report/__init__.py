"""The output of ``report`` and its relatives: sections, gates and notes. Never torch."""
