"""Verification: which drafted nodes the target accepts.

walk      the lossless walk along the target's own tokens, or a text that is known already; light
sampling  drawing tokens with position-keyed noise
rules     a method's rules: the target's own token, speculative sampling, block verification
"""
