"""Traces as files for elsewhere: offline pages, graphs, tables, timelines."""
