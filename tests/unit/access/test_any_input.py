"""Whatever is in a key file or comes from a client: a mistake is told as one, and a line stays a line."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trireme.access.api_key import Quota
from trireme.access.groups import GROUPS
from trireme.access.key_file import KeyFileError, parse_keys
from trireme.access.key_metrics import KeyMetrics
from trireme.access.key_ring import KeyRing
from trireme.access.key_secret import digest_of, hash_text
from trireme.access.log_lines import common_line, json_line
from trireme.access.tracked_request import AccessRecord, RequestTarget

PATH = Path("keys.toml")
WORDS = st.sampled_from(
    [
        *("[keys.a]", "[keys]", "[anonymous]", "hashes", "groups", "keys", "requests_per_second", "bytes_per_second"),
        *("=", "[", "]", "{", "}", ",", ".", '"', "#", "\n", "1", "nan", "true", "1979-05-27", '"all"', '"health"'),
        f'"{hash_text(digest_of(b"x"))}"',
    ]
)


@given(st.one_of(st.text(), st.lists(WORDS, max_size=40).map(" ".join)))
def test_a_text_is_keys_or_a_mistake(text: str) -> None:
    with contextlib.suppress(KeyFileError):
        keys = parse_keys(PATH, text)
        assert all(key.groups <= set(GROUPS) and isinstance(key.quota, Quota) for key in keys)


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "9" * 10_000, "a" + ".a" * 5_000 + " = 1"])
def test_texts_that_parsers_stumble_over_are_mistakes(text: str) -> None:
    with pytest.raises(KeyFileError):
        parse_keys(PATH, text)


@given(st.binary(), st.binary())
def test_a_secret_opens_its_own_key_and_no_other(kept: bytes, sent: bytes) -> None:
    (key,) = parse_keys(PATH, f'[keys.a]\nhashes = ["sha256:{digest_of(kept).hex()}"]\ngroups = ["all"]\n')
    ring = KeyRing([key], KeyMetrics())
    assert (ring.find(ring.credential(sent)) is not None) is (sent == kept)


@given(st.text(), st.text())
def test_a_line_stays_one_printable_line(path: str, model: str) -> None:
    target = RequestTarget("HTTP", "GET", path, "health")
    record = AccessRecord(0.0, "::1", "a", target, model, 200, 0, 0, 0, 1, False)
    for line in (json_line(record), common_line(record)):
        assert line.count(b"\n") == 1
        assert not any(character < 32 for character in line[:-1])
    assert json.loads(json_line(record))["path"] == path
