"""Drafting: what every drafter and every builder is made of.

session        the seam: a drafter opens a session for each round, a builder pulls from it
states         the table of what a session has said so far, which searches run on
builders       chain, best-first, OPT-Tree, and ``grow`` for your own builder
best           the best tokens of long rows
probabilities  p and q off rows of logits: lists, ranks, entropy, TVD and coverage
"""
