"""The trace format: Draftscope's own modules, packed into the wheel as they are.

In a checkout they are read where they lie, two folders above.
"""

from pathlib import Path

_HERE = Path(__file__).resolve().parent
if not (_HERE / "rounds").is_dir():
    __path__ = [str(_HERE.parents[2] / "core")]
