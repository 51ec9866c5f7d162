"""The studio's offer from the start: example prompts, the example runs that ship, what a
comparison begins with. Only here does the studio name methods. ``app.maintainers.recording`` makes
the runs.
"""

from __future__ import annotations

PROMPTS = (
    ("Definition", "What is photosynthesis? Explain it in two sentences."),
    ("List", "Name the seven days of the week."),
    ("Code", "Write a Python function that returns the sum of two numbers."),
    ("Story", "Write a short story about a cat and a boat."),
    ("Chat", "Explain to a child why the sky is blue."),
)  # what a 135M model does well: its sums are wrong
COMPARED = (("ddtree", 16), ("treeflash", 16))  # the first slots of Compare: method, draft budget
COLLECTED = ("ddtree", "treeflash", "dart")  # whose drafters answer for a run's text in What-if
FIRST = "chat-ddtree-64"  # the run that Run and Calibration open with
FIRST_COMPARED = ("code-ddtree-16", "code-treeflash")  # the form begins with their settings
OPENED = {"run": (FIRST,), "compare": FIRST_COMPARED, "denoise": ("code-spiffy-10", "code-denoise")}
# Runs that one click compares: of a prompt, those that there are.
TOGETHER = ("ddtree-16", "treeflash", "dart", "dflash", "spiffy-10", "denoise")
FIRST_PROMPT = FIRST.partition("-")[0]
TIMED = "chat"  # the prompt whose runs What-if estimates speed with

# The example runs: the prompts of their names' first parts, in the order of the page.
RECORDED = {
    "chat": "Why should we drink enough water? Explain it to me in a few friendly sentences.",
    "code": "Write a Python function that checks whether a word is a palindrome.",
    "story": "Write a short story about a lighthouse keeper and a lost ship.",
}
DENOISED = {
    "list": "Name the four seasons of the year.",
    "code": "Write a Python function that checks whether a number is even.",
}
