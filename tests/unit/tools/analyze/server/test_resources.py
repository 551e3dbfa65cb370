"""The page of metrics, and what is no address of one."""

from __future__ import annotations

import os

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


def test_memory_is_the_servers_own_where_its_process_is_known_and_else_says_that_it_is_the_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ResourceWatch, "_page", lambda watch: "nv_cpu_memory_used_bytes 9e15\n")
    found = {}
    for process_id in (None, os.getpid()):
        watch = ResourceWatch("host:8002", 60.0, process_id)
        watch.start()
        found[process_id] = watch.stop().machine
    assert found[None] == {"cpu_used_ram": 9e9, "machine_used_ram": 9e9}
    assert list(found[os.getpid()]) == ["cpu_used_ram"]
    assert 1 < found[os.getpid()]["cpu_used_ram"] < 9e8
