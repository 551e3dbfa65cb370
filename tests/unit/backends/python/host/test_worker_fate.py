"""Back-off, quarantine and the words for a death."""

from __future__ import annotations

import hashlib
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from trireme.backends.python.host.quarantine import EXPIRY_S, MAX_SUSPECTS, Quarantine, fingerprint_of
from trireme.backends.python.process.backoff import Backoff
from trireme.backends.python.process.exit_report import (
    EXITED,
    KILLED,
    OUT_OF_MEMORY,
    cause_of,
    describe_exit,
    oom_kills,
)

SECOND = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


def test_restarts_come_at_once_then_ever_later_up_to_ten_seconds() -> None:
    backoff = Backoff(Clock())
    delays = [backoff.next_delay_s() for _ in range(10)]
    assert delays == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_a_minute_of_service_resets_the_delay_and_less_does_not() -> None:
    clock = Clock()
    backoff = Backoff(clock)
    backoff.next_delay_s()
    backoff.note_serving()
    clock.now = 59 * SECOND
    assert backoff.next_delay_s() == 0.1
    backoff.note_serving()
    clock.now += 60 * SECOND
    assert backoff.next_delay_s() == 0.0


def test_a_request_is_refused_after_three_kills_and_not_before(make: SimpleNamespace) -> None:
    quarantine = Quarantine("m", Clock())
    for kills in (1, 2, 3):
        assert quarantine.examine(make.request(b"evil"))[1] is None
        assert quarantine.blame([make.request(b"evil"), make.request(b"evil")]) == kills
    _, refusal = quarantine.examine(make.request(b"evil"))
    assert refusal is not None
    assert "killed 3 worker processes of model 'm'" in refusal.message
    assert quarantine.examine(make.request(b"good"))[1] is None


def test_requests_unlike_any_suspect_are_not_hashed_whole(make: SimpleNamespace) -> None:
    quarantine = Quarantine("m", Clock())
    quarantine.blame([make.request(b"evil" * 1000)])
    assert quarantine.examine(make.request(b"good" * 1000)) == (None, None)
    middle = b"evil" * 400 + b"good" * 200 + b"evil" * 400
    fingerprint, refusal = quarantine.examine(make.request(middle))
    assert fingerprint == fingerprint_of(make.request(middle))
    assert refusal is None


def test_of_a_large_input_pieces_are_hashed(make: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    digest = hashlib.blake2b()
    counting = SimpleNamespace(
        update=lambda data: (hashed.append(len(data)), digest.update(data)), digest=digest.digest
    )
    monkeypatch.setattr(hashlib, "blake2b", lambda **_: counting)
    data = bytearray(32 << 20)
    fingerprint_of(make.request(memoryview(data)))
    assert sum(hashed) < 5 << 20
    monkeypatch.undo()
    prints = {fingerprint_of(make.request(memoryview(data)))}
    for position in (0, len(data) // 63 * 31 + (1 << 15), len(data) - 1):
        data[position] = 1
        prints.add(fingerprint_of(make.request(memoryview(data))))
    assert len(prints) == 4


def test_suspicion_expires(make: SimpleNamespace) -> None:
    clock = Clock()
    quarantine = Quarantine("m", clock)
    for _ in range(3):
        quarantine.blame([make.request(b"evil")])
    clock.now = EXPIRY_S * SECOND
    assert quarantine.examine(make.request(b"evil"))[1] is None
    assert not quarantine.suspects
    assert quarantine.blame([make.request(b"evil")]) == 1


def test_success_clears_a_suspect(make: SimpleNamespace) -> None:
    quarantine = Quarantine("m", Clock())
    quarantine.blame([make.request(b"luck")])
    quarantine.clear(fingerprint_of(make.request(b"luck")))
    assert not quarantine.suspects


def test_the_number_of_suspects_is_bounded(make: SimpleNamespace) -> None:
    quarantine = Quarantine("m", Clock())
    quarantine.blame([make.request(number.to_bytes(4, "little")) for number in range(MAX_SUSPECTS + 50)])
    assert len(quarantine.suspects) == MAX_SUSPECTS


def test_fingerprints_tell_inputs_apart_by_content_name_type_and_shape(make: SimpleNamespace) -> None:
    base = make.request(b"abcdefgh")
    assert fingerprint_of(base) == fingerprint_of(make.request(b"abcdefgh", request_id="other"))
    variants = [make.request(b"abcdefgX")]
    for change in ("name", "datatype", "shape"):
        request = make.request(b"abcdefgh")
        tensor = request.inputs["IN"]
        if change == "name":
            request.inputs = {"OTHER": tensor}
        elif change == "datatype":
            tensor.datatype = "INT32"
        else:
            tensor.shape = (2, 1)
        variants.append(request)
    assert len({fingerprint_of(base), *map(fingerprint_of, variants)}) == 5


@pytest.mark.parametrize(
    ("code", "before", "now", "reason", "words"),
    [
        (3, None, None, EXITED, "exited with code 3"),
        (0, None, None, EXITED, "exited with code 0"),
        (-signal.SIGSEGV, 0, 0, KILLED, "was killed by signal 11 (SIGSEGV)"),
        (-signal.SIGKILL, None, None, KILLED, "was killed by signal 9 (SIGKILL), possibly out of memory"),
        (-signal.SIGKILL, 4, 4, KILLED, "was killed by signal 9 (SIGKILL), possibly out of memory"),
        (-signal.SIGKILL, 4, 5, OUT_OF_MEMORY, "out of memory, the kernel's count"),
        (-99, None, None, KILLED, "was killed by signal 99 (unknown)"),
    ],
)
def test_the_cause_of_a_death_is_named(code: int, before: int | None, now: int | None, reason: str, words: str) -> None:
    found, clause = cause_of(code, before, now)
    assert found == reason
    assert words in clause


def test_the_count_of_kills_for_memory_is_read_where_there_is_one(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    assert oom_kills([events]) is None
    events.write_text("low 0\noom 7\noom_kill 3\noom_group_kill 0\n")
    assert oom_kills([tmp_path / "missing", events]) == 3


def test_the_report_ends_with_the_last_output() -> None:
    assert describe_exit(7, "exited with code 1", []) == "The worker process (pid 7) exited with code 1."
    assert describe_exit(7, "x", ["a", "b"]).endswith("Its last output:\n  a\n  b")
