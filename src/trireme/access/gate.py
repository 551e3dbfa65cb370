"""The gate that every request passes where keys are asked for or requests are written down."""

from __future__ import annotations

from trireme.access.groups import CONTROL_GROUPS
from trireme.access.key_ring import Credential, KeyRing
from trireme.access.tracked_request import AccessRecorder, RequestTarget, TrackedRequest
from trireme.core.errors import AccessError, ForbiddenError, UnauthenticatedError


class Gate:
    """One for all front ends; used on the event loop's thread. Without keys it lets everybody in."""

    def __init__(self, keys: KeyRing | None = None, log: AccessRecorder | None = None, key_header: str = "") -> None:
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

    def arrive(self, target: RequestTarget, peer: str, credential: Credential | None) -> TrackedRequest:
        """A request with this target has come; `check` says whether it may go on."""
        usage = None
        if self.keys is not None:
            usage = self.keys.anonymous if credential is None else self.keys.find(credential)
        return TrackedRequest(target, peer, usage, self.log, has_unknown_key=credential is not None and usage is None)

    def check(self, target: RequestTarget, tracked: TrackedRequest) -> None:
        """Raises AccessError where the key is missing, unknown, or not for this group."""
        if self.keys is None or not target.group:
            return
        usage = tracked.usage
        if usage is not None and target.group in usage.key.groups:
            return
        raise self._refusal(target, tracked)

    def _refusal(self, target: RequestTarget, tracked: TrackedRequest) -> AccessError:
        assert self.keys is not None
        usage = tracked.usage
        if usage is None or usage is self.keys.anonymous:
            self.keys.metrics.unauthenticated_count += 1
            return UnauthenticatedError(f"a valid API key is needed: send it as {self._ways()}")
        usage.stats.count_refusal("group")
        key = usage.key
        held = ", ".join(sorted(key.groups))
        return ForbiddenError(f"the key '{key.name}' is not allowed to use '{target.group}' (its groups: {held})")

    def _ways(self) -> str:
        bearer = "'Authorization: Bearer <key>'"
        return f"{bearer} or '{self.key_header}: <key>'" if self.key_header else bearer
