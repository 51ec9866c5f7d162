"""The prompts of the proof and the bench of the recorder."""

from functools import cache

from core.models import embedded
from core.models.language import encode_chat, load_vocabulary

PROMPTS = (
    "Why is the sky blue?",
    "Write a poem in which every line begins with the words In the morning.",
    "Count from one to thirty.",
    "Explain how a bicycle stays upright.",
    "Give me a recipe for bread.",
    "Repeat this three times: the cat sat on the mat, and the dog sat on the cat.",
    "What is the capital of France?",
    "Write a Python function that sorts a list.",
)


@cache
def encoded() -> list[list[int]]:
    """Token ids of the prompts in the embedded target's chat template."""
    tokenizer = load_vocabulary(str(embedded.prepare())).tokenizer
    return [encode_chat(tokenizer, prompt) for prompt in PROMPTS]
