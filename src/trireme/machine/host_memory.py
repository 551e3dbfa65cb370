"""How much memory this process can still have: the machine's, or its control group's where that is less."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_MEMORY_INFO = Path("/proc/meminfo")
_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
_FILES = {"": ("memory.max", "memory.current"), "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes")}
"""By controller, as the second and the first version of control groups name it: the limit, and what counts as used."""


def free_host_bytes(meminfo: Path = _MEMORY_INFO, own_groups: Path = _OWN_GROUPS, groups: Path = _GROUPS) -> int | None:
    """None where nobody tells."""
    shares = [share for share in _shares(own_groups, groups) if share is not None]
    match = re.search(r"^MemAvailable:\s+(\d+) kB", _text(meminfo), re.MULTILINE)
    if match:
        shares.append(int(match[1]) * 1024)
    return max(0, min(shares)) if shares else None


def _shares(own_groups: Path, groups: Path) -> Iterator[int | None]:
    """What is left in each group that this process is in, up to the root, which is a container's own."""
    for line in _text(own_groups).splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in set(controllers.split(",")) & _FILES.keys():
            root = groups / controller
            group = root / path.lstrip("/")
            while True:
                yield _left(group, *_FILES[controller])
                if group == root or root not in group.parents:
                    break
                group = group.parent


def _left(group: Path, limit_name: str, used_name: str) -> int | None:
    """Without the file pages that count as used, and go away when memory is needed."""
    limit, used = _text(group / limit_name).strip(), _text(group / used_name).strip()
    if not limit.isdecimal() or not used.isdecimal():  # no such group, or "max"
        return None
    match = re.search(r"^(?:total_)?inactive_file (\d+)", _text(group / "memory.stat"), re.MULTILINE)
    return int(limit) - int(used) + (int(match[1]) if match else 0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
