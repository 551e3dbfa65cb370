"""How much memory is left: of the machine, and of the groups that this process is in."""

from __future__ import annotations

from pathlib import Path

import pytest

from trireme.machine.host_memory import free_host_bytes

MIB = 1 << 20


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """One with 1000 MiB that are available, and no groups."""
    (tmp_path / "meminfo").write_text(f"MemTotal: 9999999 kB\nMemAvailable: {1000 * 1024} kB\n")
    (tmp_path / "own").write_text("0::/\n")
    return tmp_path


def free(machine: Path) -> int | None:
    found = free_host_bytes(machine / "meminfo", machine / "own", machine / "groups")
    return None if found is None else found // MIB


def put_group(folder: Path, limit: str, used_mib: int, cached_mib: int = 0, names: str = "max current") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    limit_name, used_name = names.split()
    (folder / f"memory.{limit_name}").write_text(f"{limit}\n")
    (folder / f"memory.{used_name}").write_text(f"{used_mib * MIB}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cached_mib * MIB}\n")


def test_without_groups_it_is_what_the_machine_has(machine: Path) -> None:
    assert free(machine) == 1000


def test_a_container_has_what_is_left_of_its_share(machine: Path) -> None:
    put_group(machine / "groups", str(500 * MIB), used_mib=300, cached_mib=50)
    assert free(machine) == 250


def test_a_share_that_is_larger_than_the_machine_changes_nothing(machine: Path) -> None:
    put_group(machine / "groups", "max", used_mib=300)
    assert free(machine) == 1000
    put_group(machine / "groups", str(5000 * MIB), used_mib=300)
    assert free(machine) == 1000


def test_the_smallest_of_all_groups_above_counts(machine: Path) -> None:
    (machine / "own").write_text("0::/system.slice/models.service\n")
    put_group(machine / "groups/system.slice/models.service", str(900 * MIB), used_mib=100)
    put_group(machine / "groups/system.slice", str(400 * MIB), used_mib=100)
    assert free(machine) == 300


def test_groups_of_the_first_version_count_too(machine: Path) -> None:
    (machine / "own").write_text("5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n")
    names = "limit_in_bytes usage_in_bytes"
    put_group(machine / "groups/memory", str(200 * MIB), used_mib=250, cached_mib=80, names=names)
    assert free(machine) == 30


def test_more_in_use_than_allowed_is_nothing_left(machine: Path) -> None:
    put_group(machine / "groups", str(100 * MIB), used_mib=300)
    assert free(machine) == 0


def test_nobody_knows_where_nobody_tells(tmp_path: Path) -> None:
    assert free(tmp_path) is None
