"""Training drafters and the denoiser for a target, and judging them.

options     the settings that ``train`` has flags for
sources     where training text comes from; ``prompts`` are lists of prompts that cost no model
collect     the target answers or reads the prompts, into the files of ``core.learning.shards``
fit         the optimiser, the loss and resuming
evaluation  the target's own texts that drafters are judged on
simulate    a drafter's rounds over such texts
report      block efficiency by source, with intervals
denoiser, denoiser_report  the embedded masked-diffusion model

The ``train`` command is in ``app.commands.train``, scripts that maintainers run in
``app.maintainers``. What trains one drafter is in ``training.py`` in that drafter's home
(``core.methods``); the classes that such a file builds on are in ``core.learning``.
"""
