"""``python -m app`` opens the studio; ``python -m app COMMAND`` is the command line."""

import os
import sys

# OpenMP's workers spin before they sleep. A long spin wins on a quiet machine, and where other
# programs want the cores it costs whole scheduler slices per matrix product. Tokens/s of ddtree at
# B = 16 on two cores, alone / beside one busy process / beside a dozen: 20,000 27.4 / 9.6 / 1.0;
# 5,000 24.4 / 14.1 / 2.1; 1,000 – / – / 5.4; 0 20.6 / 17.3 / 7.8. The studio shares its cores with
# a browser; `bench` and `cost` want a machine for themselves. It is set before torch is loaded.
os.environ.setdefault(
    "GOMP_SPINCOUNT",
    {"studio": "1000", "bench": "20000", "cost": "20000"}.get(
        "studio" if not sys.argv[1:] or sys.argv[1].startswith("-") else sys.argv[1], "5000"
    ),
)

from app.cli import main
from core.memory import use_one_heap

if __name__ == "__main__":
    use_one_heap()
    sys.exit(main())
