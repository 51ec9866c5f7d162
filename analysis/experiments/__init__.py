"""Runs that are compared: sweeps and the one table, bench, cost and roofline, audit."""
