"""Training drafters and the denoiser for a target, and judging them.

run         the ``train`` command: text, fit, report
sources     where training text comes from; ``prompts`` are lists of prompts that cost no model
collect     the target answers or reads the prompts, into the files of ``core.learning.shards``
fit         the optimiser, the loss and resuming
evaluation  the target's own texts that drafters are judged on
simulate    a drafter's rounds over such texts
report, ship, ablate  commands: block efficiency, replacing what ships, what each choice changes
denoiser, denoiser_report  the embedded masked-diffusion model

What trains one drafter is in ``training.py`` in that drafter's home (``core.methods``); the classes
that such a file builds on are in ``core.learning``.
"""
