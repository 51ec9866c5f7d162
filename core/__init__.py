"""Draftscope's core: decoding, drafters, traces. No user interface is ever imported here."""

import os
from pathlib import Path

VERSION = "0.9.9"
CREATOR = {"name": "draftscope", "version": VERSION}  # of the runs that are decoded here
ASSETS = Path(__file__).resolve().parent.parent / "assets"

# How often OpenMP's workers spin before they sleep; read when torch is loaded, which every program
# of ours does after this. A long spin wins on a quiet machine; where other programs want the cores,
# it costs whole scheduler slices per matrix product. Tokens/s of ddtree at B = 16 on two cores,
# alone / beside one busy process / at a load of 10 to 15: 20,000 27.4 / 9.6 / 1.0; 5,000 24.4 /
# 14.1 / 2.1; 1,000 – / – / 5.4; 0 20.6 / 17.3 / 7.8.
os.environ.setdefault("GOMP_SPINCOUNT", "5000")
