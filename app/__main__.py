"""``python -m app`` opens the studio; ``python -m app COMMAND`` is the command line."""

import gc
import os
import sys

# Where ``core``'s own number of spins does not fit: the studio shares its cores with a browser;
# `bench` and `cost` want a machine for themselves.
SPINS = {"studio": 1_000, "bench": 20_000, "cost": 20_000}
command = sys.argv[1] if sys.argv[1:] and not sys.argv[1].startswith("-") else "studio"
if command in SPINS:
    os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS[command]))

from app.cli import main  # noqa: E402
from core.memory import use_one_heap  # noqa: E402

if __name__ == "__main__":
    use_one_heap()
    # Looking for circles every 700 objects takes a tenth of the time to load the libraries.
    gc.set_threshold(50_000, 20, 50)
    sys.exit(main())
