"""Lets the tests of this folder import the server over a repository, which they share with compiled models."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "compiled_models"))
