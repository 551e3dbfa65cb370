"""Each test of this folder opens the form of its model itself."""

from __future__ import annotations

import pytest
from kept_page import NO_VIEW


@pytest.fixture(scope="module")
def first_view() -> str:
    return NO_VIEW
