"""Runs the Python of a page: `python run_block.py <its file> <where it stands in the page>`, and the tests in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path[0] = os.getcwd()
names: dict[str, object] = {"__name__": "page"}
exec(compile(Path(sys.argv[1]).read_bytes(), sys.argv[2], "exec"), names)
for name, value in list(names.items()):
    if name.startswith("test_") and callable(value):
        value()
