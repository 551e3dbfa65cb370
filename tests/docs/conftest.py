"""What the tests of the pages share: their own modules, and the hub of the end-to-end tests, can be imported."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]
