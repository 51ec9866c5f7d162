"""``python -m app`` opens the studio; ``python -m app COMMAND`` is the command line."""

import os
import sys

# OpenMP's workers spin before they sleep, by default long enough that on a busy machine two of them
# on one core cost whole scheduler slices per matrix product (measured: 2.4 s a token instead of
# 0.04). A short spin costs 5 % on a quiet machine. It has to be set before torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "20000")

from app.cli import main

if __name__ == "__main__":
    sys.exit(main())
