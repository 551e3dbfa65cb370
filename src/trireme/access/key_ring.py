"""The keys that hold at the moment, found by the secret that a client sends."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from trireme.access.api_key import ANONYMOUS, ApiKey
from trireme.access.key_metrics import KeyMetrics
from trireme.access.key_secret import digest_of
from trireme.access.usage import KeyUsage
from trireme.core.clock import Clock, monotonic_ns


@dataclass(frozen=True, slots=True)
class Credential:
    """What a client sent, as it is looked up."""

    digest: bytes
    place: bytes
    """Where the ring keeps keys with this digest."""


class KeyRing:
    """Used on the event loop's thread; changed as a whole when the key file was read again.

    A secret is found by a hash that only this process can compute, so that how long the search takes tells nothing
    about the secrets there are; then the digests are compared in constant time.
    """

    def __init__(self, keys: Sequence[ApiKey], metrics: KeyMetrics, clock: Clock = monotonic_ns) -> None:
        self.metrics = metrics
        self.anonymous: KeyUsage | None = None
        self._clock = clock
        self._process_secret = secrets.token_bytes(32)
        self._usages: dict[str, KeyUsage] = {}
        self._by_place: dict[bytes, tuple[bytes, KeyUsage]] = {}
        self.replace(keys)

    def replace(self, keys: Sequence[ApiKey]) -> None:
        """These hold from now on, and no others; a name that stays keeps what it has used."""
        now_ns = self._clock()
        usages: dict[str, KeyUsage] = {}
        for key in keys:
            usage = self._usages.get(key.name)
            if usage is None:
                usage = KeyUsage(key, self.metrics.of(key.name), now_ns)
            else:
                usage.follow(key, now_ns)
            usages[key.name] = usage
        self._usages = usages
        self.anonymous = usages.get(ANONYMOUS)
        self._by_place = {self._place(digest): (digest, usages[key.name]) for key in keys for digest in key.hashes}

    def credential(self, secret: bytes) -> Credential:
        """How this secret is looked up; the same for the life of the process."""
        digest = digest_of(secret)
        return Credential(digest, self._place(digest))

    def find(self, credential: Credential) -> KeyUsage | None:
        """Whose it is; None where nobody has it, or has it any more."""
        found = self._by_place.get(credential.place)
        if found is None or not hmac.compare_digest(found[0], credential.digest):
            return None
        return found[1]

    @property
    def names(self) -> list[str]:
        """Of the keys there are."""
        return [name for name in self._usages if name != ANONYMOUS]

    def _place(self, digest: bytes) -> bytes:
        return hashlib.blake2b(digest, key=self._process_secret, digest_size=32).digest()
