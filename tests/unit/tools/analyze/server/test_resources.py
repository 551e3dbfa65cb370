"""The page of metrics, and what is no address of one."""

from __future__ import annotations

import pytest

from trireme.tools.analyze.errors import InputError
from trireme.tools.analyze.server.resources import ResourceWatch


@pytest.mark.parametrize("url", ["host:port", "ftp://host:8002"])
def test_what_is_no_address_of_metrics_is_told(url: str) -> None:
    with pytest.raises(InputError, match=r"--triton-metrics-url: '.*' is no address"):
        ResourceWatch(url, 1.0)
