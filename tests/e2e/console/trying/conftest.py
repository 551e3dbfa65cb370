"""Each test of this folder opens the form of its model itself."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def first_address() -> str:
    return "about:blank"
