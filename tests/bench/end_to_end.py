"""``run ddtree --budget 16`` end to end, against plain decoding and transformers' ``generate``.

    python -m tests.bench.end_to_end [--drafter FOLDER] [--repeats 5]

The same as ``python -m app bench ddtree --budget 16``; further options are passed on to it.
"""

from __future__ import annotations

import sys

from app.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "ddtree", "--budget", "16", *sys.argv[1:]]))
