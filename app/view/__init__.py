"""Rounds and traces as people see them: what the page, the terminal, files and Learn draw.

text         token text made safe to show
layout       where a draft's nodes are drawn
rounds       a round and its nodes as plain JSON
explanation  why a node was drafted
denoise      denoising rounds as plain JSON
comparison   what can be compared of several runs
tree         a round as text for a terminal and as SVG
"""
