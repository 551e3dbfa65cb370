"""The messages between server and worker."""

from __future__ import annotations

from collections import Counter

from trireme.backends.python.channel import messages

NO_KINDS = {"MARSHAL_VERSION", "INLINE_LIMIT_BYTES"}


def test_every_kind_of_message_has_a_number_of_its_own() -> None:
    numbers = {
        name: number for name, number in vars(messages).items() if isinstance(number, int) and name not in NO_KINDS
    }
    assert len(numbers) > 25
    assert [number for number, count in Counter(numbers.values()).items() if count > 1] == []
