"""Example prompts: short enough for a laptop, different enough to show different trees."""

EXAMPLES = (
    ("Math", "Tom has 3 boxes with 12 pencils each. He gives away 9 pencils. How many are left?"),
    ("Code", "Write a Python function that returns the n-th Fibonacci number."),
    ("Chat", "Explain to a child why the sky is blue."),
    ("List", "List the planets of the solar system, one per line."),
    ("Rewrite", "Say this more politely: Send me the report now."),
)
