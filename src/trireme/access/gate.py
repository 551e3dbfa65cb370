"""The gate that every request passes where keys are asked for or visits are written down."""

from __future__ import annotations

from trireme.access.groups import CONTROL_GROUPS
from trireme.access.key_ring import Credential, KeyRing
from trireme.access.visit import Door, Visit, VisitLog
from trireme.core.errors import AccessError, ForbiddenError, UnauthenticatedError


class Gate:
    """One for all front ends; used on the event loop's thread. Without keys it lets everybody in."""

    def __init__(self, keys: KeyRing | None = None, log: VisitLog | None = None, key_header: str = "") -> None:
        self.keys = keys
        self.log = log
        self.key_header = key_header.lower()
        """A header that may carry the key in place of `Authorization: Bearer`; "" for none."""

    def watches(self, group: str) -> bool:
        """Whether requests of this group have to pass at all; the others cost nothing."""
        return self.keys is not None or self.log is not None or group in CONTROL_GROUPS

    def credential(self, secret: bytes | None) -> Credential | None:
        """How a secret is looked up; None where there is none, or no need for one."""
        return None if secret is None or self.keys is None else self.keys.credential(secret)

    def arrive(self, door: Door, peer: str, credential: Credential | None) -> Visit:
        """Somebody is at the door; `check` says whether they may come in."""
        usage = None
        if self.keys is not None:
            usage = self.keys.anonymous if credential is None else self.keys.find(credential)
        return Visit(door, peer, usage, self.log, has_unknown_key=credential is not None and usage is None)

    def check(self, door: Door, visit: Visit) -> None:
        """Raises AccessError where the key is missing, unknown, or not for this group."""
        if self.keys is None or not door.group:
            return
        usage = visit.usage
        if usage is not None and door.group in usage.key.groups:
            return
        raise self._refusal(door, visit)

    def _refusal(self, door: Door, visit: Visit) -> AccessError:
        assert self.keys is not None
        usage = visit.usage
        if usage is None or usage is self.keys.anonymous:
            self.keys.metrics.unauthenticated_count += 1
            return UnauthenticatedError(f"a valid API key is needed: send it as {self._ways()}")
        usage.stats.count_refusal("group")
        key = usage.key
        held = ", ".join(sorted(key.groups))
        return ForbiddenError(f"the key '{key.name}' is not allowed to use '{door.group}' (its groups: {held})")

    def _ways(self) -> str:
        bearer = "'Authorization: Bearer <key>'"
        return f"{bearer} or '{self.key_header}: <key>'" if self.key_header else bearer
