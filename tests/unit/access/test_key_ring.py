"""Which key a secret is, now and after the key file has changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trireme.access import key_ring
from trireme.access.api_key import ANONYMOUS, ApiKey, Quota
from trireme.access.key_metrics import KeyMetrics
from trireme.access.key_ring import KeyRing
from trireme.access.key_secret import digest_of
from trireme.core.errors import QuotaExceededError

CI = ApiKey("ci", (digest_of(b"one"), digest_of(b"two")), frozenset(("inference",)), Quota(requests_per_second=1))
OPS = ApiKey("ops", (digest_of(b"three"),), frozenset(("inference",)))


def name_of(ring: KeyRing, secret: bytes) -> str | None:
    found = ring.find(ring.credential(secret))
    return None if found is None else found.key.name


def test_every_secret_of_a_name_is_found_and_no_other() -> None:
    ring = KeyRing([CI, OPS], KeyMetrics())
    assert [name_of(ring, secret) for secret in (b"one", b"two", b"three")] == ["ci", "ci", "ops"]
    assert [name_of(ring, secret) for secret in (b"", b"One", b"one ", digest_of(b"one"))] == [None] * 4


def test_a_secret_looked_up_before_the_change_is_judged_by_what_holds_now() -> None:
    ring = KeyRing([CI], KeyMetrics())
    one, three = ring.credential(b"one"), ring.credential(b"three")
    assert ring.find(three) is None
    ring.replace([OPS])
    assert ring.find(one) is None
    found = ring.find(three)
    assert found is not None
    assert found.key.name == "ops"


def test_a_name_keeps_what_it_has_used_when_its_secrets_change() -> None:
    ring = KeyRing([CI], KeyMetrics(), clock=lambda: 0)
    found = ring.find(ring.credential(b"one"))
    assert found is not None
    found.begin_request(0)
    ring.replace([replace(CI, hashes=(digest_of(b"new"),))])
    found = ring.find(ring.credential(b"new"))
    assert found is not None
    with pytest.raises(QuotaExceededError):
        found.begin_request(0)
    assert name_of(ring, b"one") is None


def test_clients_without_a_key_have_their_own_entry_where_the_file_has_one() -> None:
    anonymous = ApiKey(ANONYMOUS, (), frozenset(("health",)))
    ring = KeyRing([CI, anonymous], KeyMetrics())
    assert ring.anonymous is not None
    assert ring.anonymous.key is anonymous
    assert ring.names == ["ci"]
    ring.replace([CI])
    assert ring.anonymous is None


def test_where_a_secret_is_kept_cannot_be_computed_elsewhere_and_digests_are_compared_in_constant_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert KeyRing([], KeyMetrics()).credential(b"one").place != KeyRing([], KeyMetrics()).credential(b"one").place
    compared = []

    def compare(first: bytes, second: bytes) -> bool:
        compared.append((first, second))
        return first == second

    monkeypatch.setattr(key_ring.hmac, "compare_digest", compare)
    assert name_of(KeyRing([CI], KeyMetrics()), b"one") == "ci"
    assert compared == [(digest_of(b"one"), digest_of(b"one"))]
