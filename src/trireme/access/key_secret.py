"""The secrets that clients send: how they are made, and the hashes that stand for them in the key file."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final

PREFIX: Final = "trireme-"
"""Lets a person, and a scanner for leaked secrets, see what it is."""
_HASH_FORM: Final = "sha256:"
_SECRET_BYTES: Final = 32
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")


def new_secret() -> str:
    """A key that nobody can guess: 256 random bits."""
    return PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def digest_of(secret: bytes) -> bytes:
    """What is known of a secret. One round is enough, because secrets are random and as long as the hash."""
    return hashlib.sha256(secret).digest()


def hash_text(digest: bytes) -> str:
    """The digest as the key file has it."""
    return _HASH_FORM + digest.hex()


def parse_hash(text: object) -> bytes | None:
    """The digest in a hash of the key file; None where it is none."""
    if not isinstance(text, str) or _HASH.fullmatch(text) is None:
        return None
    return bytes.fromhex(text.removeprefix(_HASH_FORM))
