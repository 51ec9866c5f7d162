"""Masked-diffusion models: block-wise denoising, and Spiffy's draft graphs on top of it.

request             what a person asks for, as plain data: settings, pace, draft graph
draft_graph         draft graphs: which tokens to set ahead of the target
graph_files         their files, and the graphs that ship
draft_graph_search  finding the best graph for a model from recorded runs
denoise             the loop: one model call per round
ranking             logits → which position is unmasked next, and with which token
verify              which drafts of a call the target's own steps lead through
nfe                 a run's model calls, and those another graph would have needed
target              the models' forward passes: many block states in one call
models              loading diffusion models; adapter: the embedded one's weights
run                 starting a run from a request
"""
