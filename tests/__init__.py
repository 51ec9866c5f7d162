"""Where the files of the repository are that tests read."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent
GOLDEN = TESTS / "golden"
ROOT = TESTS.parent
