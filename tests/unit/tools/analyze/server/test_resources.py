"""The page of metrics, and what is no address of one."""

from __future__ import annotations

import pytest

from trireme.tools.analyze.errors import InputError
from trireme.tools.analyze.server.resources import ResourceWatch


@pytest.mark.parametrize("url", ["host:port", "ftp://host:8002"])
def test_what_is_no_address_of_metrics_is_told(url: str) -> None:
    with pytest.raises(InputError, match=r"--triton-metrics-url: '.*' is no address"):
        ResourceWatch(url, 1.0)


@pytest.mark.parametrize(
    ("page", "sees_devices"),
    [("nv_cpu_utilization 0.5\n", False), ('nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5\n', True)],
)
def test_a_page_tells_of_accelerators_or_not(monkeypatch: pytest.MonkeyPatch, page: str, sees_devices: bool) -> None:
    monkeypatch.setattr(ResourceWatch, "_page", lambda watch: page)
    watch = ResourceWatch("host:8002", 60.0)
    watch.start()
    assert watch.sees_devices == sees_devices
    watch.stop()
