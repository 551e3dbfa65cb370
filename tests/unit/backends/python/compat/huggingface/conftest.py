"""What the tests of this folder share: patches that have told nothing yet, and nothing that is asked for."""

from __future__ import annotations

import pytest

from trireme.backends.python.compat import report


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The kinds that were told in this test."""
    monkeypatch.delenv("TRIREME_COMPAT", raising=False)
    kinds: set[str] = set()
    monkeypatch.setattr(report, "_told", kinds)
    return kinds
