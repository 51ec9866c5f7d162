"""For vLLM without entry points: ``--worker-extension-cls draftscope_recorder.extension.Worker``.

Importing it in the worker installs the recorder, as the entry point does.
"""

from .vllm import install

install()


class Worker:
    """Adds nothing to the worker."""
