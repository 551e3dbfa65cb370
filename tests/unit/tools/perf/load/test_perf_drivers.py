"""Who sends when: closed loops, schedules, sequences, periods, budgets, with a transport that only remembers."""

from __future__ import annotations

from itertools import pairwise
from time import monotonic_ns

import pytest

from trireme.tools.perf.load.calls import DELAYED, SEQUENCE_END, Call
from trireme.tools.perf.load.drivers import ClosedLoop, Driver, OpenLoop, PeriodicLoop
from trireme.tools.perf.load.records import Recorder, Records
from trireme.tools.perf.load.schedules import LoadLevel, Schedule, mean_rate, poisson
from trireme.tools.perf.load.sources import PlainSource, SequenceSource
from trireme.tools.perf.options import SequenceOptions


class Form:
    def __init__(self, name: str) -> None:
        self.plain = name.encode()

    def in_sequence(self, sequence_id: int, is_start: bool, is_end: bool) -> bytes:
        return b"%b %d %d%d" % (self.plain, sequence_id, is_start, is_end)


class Remembering:
    """Keeps what was sent until the test answers it."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.under_way: list[Call] = []

    def send(self, call: Call) -> None:
        call.start_ns = call.sent_ns = call.received_ns = 10
        self.sent.append(call.data)
        self.under_way.append(call)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


def start(driver: Driver, level: LoadLevel) -> Remembering:
    transport = Remembering()
    driver.transport = transport
    driver.configure(level)
    return transport


def answer(driver: Driver, transport: Remembering, count: int = 1) -> None:
    for _ in range(count):
        driver.finished(transport.under_way.pop(0), 30, None)


def taken(recorder: Recorder) -> Records:
    return Records.from_bytes(*recorder.take())


def test_a_closed_loop_keeps_its_number_up() -> None:
    recorder = Recorder(False)
    driver = ClosedLoop(PlainSource([Form("a"), Form("b")]), recorder)
    transport = start(driver, LoadLevel(concurrency=2))
    answer(driver, transport, 3)
    assert transport.sent == [b"a", b"b", b"a", b"b", b"a"]
    driver.configure(LoadLevel(concurrency=4))
    assert len(transport.under_way) == 4
    driver.configure(LoadLevel(concurrency=1))
    answer(driver, transport, 4)
    assert len(transport.under_way) == 1
    assert taken(recorder).latency_ns.tolist() == [20] * 7


def test_a_budget_is_spent_exactly() -> None:
    recorder = Recorder(False)
    driver = ClosedLoop(PlainSource([Form("a")]), recorder)
    transport = start(driver, LoadLevel(concurrency=3, budget=5))
    while transport.under_way:
        answer(driver, transport)
    assert (len(transport.sent), recorder.total, driver.outstanding) == (5, 5, 0)


def test_the_first_failure_ends_the_load() -> None:
    driver = ClosedLoop(PlainSource([Form("a")]), Recorder(False))
    transport = start(driver, LoadLevel(concurrency=2))
    driver.failed(transport.under_way.pop(), "it broke")
    answer(driver, transport)
    assert driver.error == "it broke"
    assert (len(transport.sent), driver.outstanding) == (2, 0)


def test_an_answer_that_is_not_as_it_must_be_is_none() -> None:
    recorder = Recorder(False)
    driver = ClosedLoop(
        PlainSource([Form("a")]), recorder, lambda call, body: None if body == b"good" else "it differs"
    )
    transport = start(driver, LoadLevel(concurrency=2))
    driver.finished(transport.under_way.pop(0), 30, b"good")
    for _ in range(2):
        driver.finished(transport.under_way.pop(0), 30, b"bad")
    assert driver.error == "it differs"
    assert (recorder.total, len(transport.sent), driver.outstanding) == (1, 3, 0)


def test_an_answer_that_cannot_be_compared_ends_the_load() -> None:
    def check(call: Call, body: object) -> str | None:
        raise ValueError("it is no JSON")

    recorder = Recorder(False)
    driver = ClosedLoop(PlainSource([Form("a")]), recorder, check)
    transport = start(driver, LoadLevel(concurrency=1))
    driver.finished(transport.under_way.pop(0), 30, b"bad")
    assert driver.error == "the answer cannot be compared: ValueError: it is no JSON"
    assert (recorder.total, len(transport.sent), driver.outstanding) == (0, 1, 0)


def test_latencies_of_an_open_loop_begin_when_requests_were_due() -> None:
    recorder = Recorder(False)
    driver = OpenLoop(PlainSource([Form("a")]), recorder)
    transport = start(driver, LoadLevel(schedule=Schedule("fixed", values=(0.0, 0.0, 5.0)), budget=3))
    driver._begin_ns -= 20_000_000  # the loop was held up for twenty milliseconds
    driver._due_ns = driver._begin_ns
    driver.wait_s()
    driver.fire()
    assert len(transport.sent) == 3
    call = transport.under_way[-1]
    assert call.due_ns == driver._begin_ns + 5_000_000
    assert call.flags & DELAYED
    assert driver.wait_s() is None
    driver.finished(call, call.due_ns + 7, None)
    assert taken(recorder).latency_ns.tolist() == [7]


def test_an_open_loop_wakes_before_a_request_is_due_and_looks_at_its_sockets_until_then() -> None:
    driver = OpenLoop(PlainSource([Form("a")]), Recorder(False))
    transport = start(driver, LoadLevel(schedule=Schedule("constant", rate=1.0)))
    driver.fire()
    assert len(transport.sent) == 1
    waits = driver.wait_s()
    assert waits is not None
    assert 0.9 < waits < 1.0
    driver._due_ns = monotonic_ns() + 50_000  # nearer than a machine wakes in time
    assert driver.wait_s() == 0.0
    driver.fire()
    assert len(transport.sent) == 1, "and nothing is sent before its time"


def test_sequences_begin_and_end_and_have_ids() -> None:
    options = SequenceOptions(length=3, variation_percent=0, first_id=7)
    driver = ClosedLoop(SequenceSource([[Form("a"), Form("b")]], options, False, 0), recorder := Recorder(False))
    transport = start(driver, LoadLevel(concurrency=1))
    answer(driver, transport, 4)
    assert transport.sent == [b"a 7 10", b"b 7 00", b"a 7 01", b"a 8 10", b"b 8 00"]
    assert taken(recorder).sequences == 1
    driver.stop()
    answer(driver, transport, 2)
    assert transport.sent[-1] == b"a 8 01"
    assert not transport.under_way


def test_sequences_of_given_data_have_its_length() -> None:
    source = SequenceSource([[Form("a")], [Form("b"), Form("c")]], SequenceOptions(), True, 0)
    call = Call()
    filled = []
    for _ in range(3):
        source.fill(call)
        filled.append((call.data, call.content, call.flags))
    assert filled == [(b"a 1 11", 0, SEQUENCE_END), (b"b 2 10", 1, 0), (b"c 2 01", 2, SEQUENCE_END)]


def test_a_serial_sequence_waits_for_its_answer() -> None:
    options = SequenceOptions(length=4, variation_percent=0)
    source = SequenceSource([[Form("a")]], options, False, 0)
    driver = OpenLoop(source, Recorder(False), sequences=1, is_serial=True)
    transport = start(driver, LoadLevel(schedule=Schedule("fixed", values=(0.0, 0.0, 0.0))))
    driver.fire()
    assert len(transport.sent) == 1
    answer(driver, transport)
    assert transport.sent == [b"a 1 10", b"a 1 00"]


def test_a_period_adds_requests_when_the_last_ones_have_brought_enough() -> None:
    driver = PeriodicLoop(PlainSource([Form("a")]), Recorder(True))
    transport = start(driver, LoadLevel(concurrency=2, step=2, period=3, budget=6))
    first, second = transport.under_way
    for number in range(3):
        driver.responded(first, number, None)
    assert len(transport.sent) == 2
    for number in range(3):
        driver.responded(second, number, None)
    assert len(transport.sent) == 4
    for call in transport.under_way[2:]:
        for number in range(3):
            driver.responded(call, number, None)
    assert len(transport.sent) == 6


def test_an_empty_last_response_is_no_part_of_the_latency() -> None:
    recorder = Recorder(True)
    driver = ClosedLoop(PlainSource([Form("a")]), recorder)
    transport = start(driver, LoadLevel(concurrency=1, budget=1))
    call = transport.under_way[0]
    driver.responded(call, 20, b"x")
    driver.responded(call, 25, b"y")
    driver.finished(call, 90, b"")
    records = taken(recorder)
    assert records.latency_ns.tolist() == [15]
    assert records.responses == 2
    assert records.details[0].times == (20, 25, 90)


def test_poisson_arrivals_have_the_rate_and_no_rhythm() -> None:
    times = poisson(1000, seed=1)
    gaps = [b - a for a, b in pairwise([next(times) for _ in range(5001)])]
    assert sum(gaps) / len(gaps) == pytest.approx(1e6, rel=0.05)
    assert len(set(gaps)) > 4900
    assert mean_rate([1000, 3000]) == 500
