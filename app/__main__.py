"""``python -m app`` opens the studio; ``python -m app COMMAND`` is the command line."""

import os
import sys

# How often OpenMP's workers spin before they sleep. A long spin wins on a quiet machine; where
# other programs want the cores, it costs whole scheduler slices per matrix product. Tokens/s of
# ddtree at B = 16 on two cores, alone / beside one busy process / at a load of 10 to 15: 20,000
# 27.4 / 9.6 / 1.0; 5,000 24.4 / 14.1 / 2.1; 1,000 – / – / 5.4; 0 20.6 / 17.3 / 7.8. The studio
# shares its cores with a browser; `bench` and `cost` want a machine for themselves.
SPINS = {"studio": 1_000, "bench": 20_000, "cost": 20_000}
OTHERS = 5_000
command = sys.argv[1] if sys.argv[1:] and not sys.argv[1].startswith("-") else "studio"
os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS.get(command, OTHERS)))  # before torch is loaded

from app.cli import main  # noqa: E402
from core.memory import use_one_heap  # noqa: E402

if __name__ == "__main__":
    use_one_heap()
    sys.exit(main())
