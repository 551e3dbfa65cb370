"""What a worker is told about its limits, in its environment."""

from __future__ import annotations

import json
from collections.abc import Mapping

from trireme.backends.python.worker.confinement import VARIABLE
from trireme.backends.worker_limits import WorkerLimits


def confined_variables(limits: WorkerLimits | None, base: Mapping[str, str]) -> dict[str, str]:
    """The variables that belong to these limits; another user has another home."""
    if limits is None or limits == WorkerLimits():
        return {}
    told: dict[str, object] = {
        "memory_bytes": limits.memory_bytes,
        "open_files": limits.open_files,
        "has_network": limits.has_network,
    }
    user = limits.user
    if user is None:
        return {VARIABLE: json.dumps(told)}
    told |= {"uid": user.uid, "gid": user.gid, "groups": user.groups}
    own = {"HOME": user.home, "USER": user.name, "LOGNAME": user.name}
    return {VARIABLE: json.dumps(told), **{name: value for name, value in own.items() if name in base}}
