"""Batches out and answers back, without a process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trireme.backends.python.channel import messages
from trireme.backends.python.host.calls import BlsCalls
from trireme.backends.python.host.instance import PythonInstance
from trireme.backends.python.host.quarantine import Quarantine, fingerprint_of
from trireme.core.batch import Batch
from trireme.core.errors import ErrorKind, InternalError


class Bench:
    """An instance connected to a link that remembers."""

    def __init__(self, make: SimpleNamespace, **config: Any) -> None:
        self.make = make
        self.runner = make.runner()
        self.link = make.link()
        self.quarantine = Quarantine("m")
        self.instance = PythonInstance("m_0", make.config(**config), self.runner, self.quarantine)
        self.instance.connect(self.link, BlsCalls(self.link, None, None, self.instance.request_of))  # type: ignore[arg-type]

    def execute(self, *datas: bytes) -> tuple[Batch, list[tuple[Any, ...]]]:
        """Runs a batch with these inputs; returns it and the encoded requests."""
        batch = Batch([self.make.request(data) for data in datas], len(datas), 0)
        self.instance.execute(batch)
        kind, _, requests = self.link.sent[-1]
        assert kind == messages.EXECUTE
        return batch, requests

    def results(self, answers: list[Any], error: Any = None) -> list[Any]:
        number = [message[1] for message in self.link.sent if message[0] == messages.EXECUTE][-1]
        self.instance.on_results((messages.RESULTS, number, answers, error, 5, 7, 11))
        responses: list[Any] = self.runner.finished[-1][2]
        return responses


def answer(*names: str, data: Any = b"\1\0\0\0") -> tuple[Any, ...]:
    return [(name, "FP32", (1, 1), data) for name in names], None, None


def test_a_batch_goes_out_in_one_message_with_its_inputs(make: SimpleNamespace) -> None:
    bench = Bench(make)
    _, requests = bench.execute(b"aaaa", b"bbbb")
    assert len(bench.link.sent) == 1
    keys = [request[0] for request in requests]
    assert len(set(keys)) == 2
    assert requests[0][1:] == ("r", [("IN", "FP32", (1, 1), b"aaaa")], ("OUT",), 0, 0, 0, {}, None)


def test_large_inputs_travel_through_shared_memory(make: SimpleNamespace) -> None:
    bench = Bench(make)
    big = bytes(messages.INLINE_LIMIT_BYTES + 4)
    _, requests = bench.execute(big, bytes(messages.INLINE_LIMIT_BYTES))
    assert requests[0][2][0][3] == (1, 64, len(big))
    assert isinstance(requests[1][2][0][3], bytes)
    assert bench.link.arena.placed == [big]


def test_results_finish_the_batch_in_order_with_its_timing(make: SimpleNamespace) -> None:
    bench = Bench(make)
    batch, _ = bench.execute(b"aaaa", b"bbbb")
    first, second = bench.results([answer("OUT", data=b"1111"), answer("OUT", data=b"2222")])
    assert first.outputs[0].data == b"1111"
    assert second.outputs[0].data == b"2222"
    assert first.is_final
    instance, finished, _, timing = bench.runner.finished[0]
    assert (instance, finished) == (bench.instance, batch)
    assert (timing.compute_infer_ns, timing.compute_output_ns) == (7, 11)
    assert timing.compute_input_ns >= 5
    assert bench.instance.is_idle


def test_outputs_that_were_not_asked_for_or_not_declared_are_dropped(make: SimpleNamespace) -> None:
    bench = Bench(make, outputs=("OUT", "MORE"))
    batch, _ = bench.execute(b"aaaa", b"bbbb")
    batch.requests[0].requested_outputs = ("MORE",)
    first, second = bench.results([answer("OUT", "MORE", "STRANGE"), answer("STRANGE", "OUT")])
    assert [tensor.name for tensor in first.outputs] == ["MORE"]
    assert [tensor.name for tensor in second.outputs] == ["OUT"]


def test_a_dropped_output_in_shared_memory_is_given_back(make: SimpleNamespace) -> None:
    bench = Bench(make)
    bench.execute(b"aaaa")
    bench.results([answer("STRANGE", data=(1, 0, 100_000))])
    assert bench.link.viewed == [(1, 0, 100_000)]


def test_an_error_of_one_request_is_its_own_and_keeps_its_text(make: SimpleNamespace) -> None:
    bench = Bench(make)
    bench.execute(b"aaaa", b"bbbb")
    first, second = bench.results([([], (int(ErrorKind.NOT_FOUND), "no such thing"), None), answer("OUT")])
    assert (first.error.kind, first.error.message) == (ErrorKind.NOT_FOUND, "no such thing")
    assert second.error is None


def test_a_failed_batch_fails_each_request_with_the_instance_named(make: SimpleNamespace) -> None:
    bench = Bench(make)
    bench.execute(b"aaaa", b"bbbb")
    responses = bench.results([], (int(ErrorKind.INTERNAL), "ValueError: boom"))
    expected = "Failed to process the request(s) for model 'm_0', message: ValueError: boom"
    assert [response.error.message for response in responses] == [expected, expected]
    assert bench.instance.is_idle


def test_a_failed_batch_leaves_requests_alone_that_had_their_final_response(make: SimpleNamespace) -> None:
    bench = Bench(make, is_decoupled=True)
    _, requests = bench.execute(b"aaaa", b"bbbb")
    bench.instance.on_response((messages.RESPONSE, requests[0][0], answer("OUT"), True))
    first, second = bench.results([], (int(ErrorKind.INTERNAL), "boom"))
    assert first is None
    assert second.error is not None


def test_too_large_a_batch_is_refused(make: SimpleNamespace) -> None:
    bench = Bench(make, max_batch_size=2)
    bench.instance.execute(Batch([make.request()], 3, 0))
    assert bench.link.sent == []
    (response,) = bench.runner.finished[0][2]
    assert response.error.message == "batch size 3 for 'm', max allowed is 2"
    assert response.error.kind == ErrorKind.INTERNAL


def test_a_decoupled_request_lives_until_its_final_response(make: SimpleNamespace) -> None:
    bench = Bench(make, is_decoupled=True)
    batch, requests = bench.execute(b"aaaa")
    key = requests[0][0]
    assert bench.results([None]) == [None]
    assert not bench.instance.is_idle
    bench.instance.on_response((messages.RESPONSE, key, answer("OUT"), False))
    bench.instance.on_response((messages.RESPONSE, key, None, True))
    (first_request, first), (_, last) = bench.runner.responses
    assert first_request is batch.requests[0]
    assert (first.is_final, first.is_empty) == (False, False)
    assert (last.is_final, last.is_empty) == (True, True)
    assert bench.instance.is_idle


def test_a_response_after_the_final_one_is_dropped(make: SimpleNamespace) -> None:
    bench = Bench(make, is_decoupled=True)
    _, requests = bench.execute(b"aaaa")
    bench.instance.on_response((messages.RESPONSE, requests[0][0], None, True))
    bench.instance.on_response((messages.RESPONSE, requests[0][0], answer("OUT", data=(1, 0, 50_000)), False))
    assert len(bench.runner.responses) == 1
    assert bench.link.viewed == [(1, 0, 50_000)]


def test_a_single_response_and_its_final_mark_are_one_response(make: SimpleNamespace) -> None:
    bench = Bench(make)
    _, requests = bench.execute(b"aaaa")
    key = requests[0][0]
    bench.instance.on_response((messages.RESPONSE, key, answer("OUT"), False))
    assert bench.runner.responses == []
    bench.results([None])
    bench.instance.on_response((messages.RESPONSE, key, None, True))
    ((_, response),) = bench.runner.responses
    assert response.is_final
    assert not response.is_empty
    assert [tensor.name for tensor in response.outputs] == ["OUT"]


def test_a_rescheduled_request_goes_back_and_is_not_answered(make: SimpleNamespace) -> None:
    bench = Bench(make)
    batch, requests = bench.execute(b"aaaa", b"bbbb")
    bench.instance.on_reschedule((messages.RESCHEDULE, requests[1][0]))
    first, second = bench.results([answer("OUT"), None])
    assert bench.runner.rescheduled == [batch.requests[1]]
    assert first.error is None
    assert second is None
    assert bench.instance.is_idle


def test_cancel_names_the_running_request(make: SimpleNamespace) -> None:
    bench = Bench(make)
    batch, requests = bench.execute(b"aaaa", b"bbbb")
    bench.instance.cancel(batch.requests[1])
    assert bench.link.sent[-1] == (messages.CANCEL, requests[1][0])
    sent = len(bench.link.sent)
    bench.instance.cancel(make.request())
    assert len(bench.link.sent) == sent


def test_a_dead_worker_fails_batches_and_open_streams_once(make: SimpleNamespace) -> None:
    bench = Bench(make, is_decoupled=True)
    first_batch, _ = bench.execute(b"aaaa")
    bench.results([None])
    second_batch, _ = bench.execute(b"bbbb")
    bench.instance.disconnect()
    bench.instance.fail(InternalError("it died"))
    ((request, response),) = bench.runner.responses
    assert request is first_batch.requests[0]
    assert response.is_final
    assert response.error.message == "it died"
    assert bench.runner.finished[-1][1] is second_batch
    assert bench.runner.finished[-1][2][0].error.message == "it died"
    bench.instance.fail(InternalError("again"))
    assert len(bench.runner.responses) == 1
    assert len(bench.runner.finished) == 2


def test_without_a_worker_a_batch_is_answered_at_once(make: SimpleNamespace) -> None:
    bench = Bench(make)
    bench.instance.disconnect()
    bench.instance.execute(Batch([make.request()], 1, 0))
    assert bench.runner.finished[0][2][0].error.kind == ErrorKind.UNAVAILABLE


def test_a_batch_that_cannot_be_encoded_is_answered_and_takes_no_memory(make: SimpleNamespace) -> None:
    bench = Bench(make)
    bench.link.arena.capacity = 50_000
    batch = Batch([make.request(bytes(40_000)), make.request(bytes(60_000))], 2, 0)
    bench.instance.execute(batch)
    assert all("arena is full" in response.error.message for response in bench.runner.finished[0][2])
    assert bench.link.arena.released == [(1, 64)]
    assert bench.instance.is_idle


def test_a_request_that_killed_three_workers_is_refused_and_its_neighbours_run(make: SimpleNamespace) -> None:
    bench = Bench(make)
    for _ in range(3):
        bench.quarantine.blame([make.request(b"evil")])
    _, requests = bench.execute(b"good", b"evil", b"fine")
    assert [request[2][0][3] for request in requests] == [b"good", b"fine"]
    first, second, third = bench.results([answer("OUT", data=b"1111"), answer("OUT", data=b"3333")])
    assert first.outputs[0].data == b"1111"
    assert "killed 3 worker processes" in second.error.message
    assert third.outputs[0].data == b"3333"


def test_a_request_with_two_kills_runs_alone_and_clears_or_convicts_itself(make: SimpleNamespace) -> None:
    bench = Bench(make)
    for _ in range(2):
        bench.quarantine.blame([make.request(b"evil"), make.request(b"good")])
    _, requests = bench.execute(b"fine", b"good", b"evil")
    assert [request[2][0][3] for request in requests] == [b"good"]
    assert [request.inputs["IN"].data for request in bench.runner.rescheduled] == [b"fine", b"evil"]
    put_off, answered, also_put_off = bench.results([answer("OUT", data=b"2222")])
    assert (put_off, also_put_off) == (None, None)
    assert answered.outputs[0].data == b"2222"
    _, requests = bench.execute(b"good", b"fine")
    assert len(requests) == 2, "what has run and left its worker alive is free of suspicion"
    bench.results([answer("OUT"), answer("OUT")])
    _, requests = bench.execute(b"fine", b"evil")
    assert [request[2][0][3] for request in requests] == [b"evil"]
    bench.quarantine.blame(bench.instance.running)
    bench.instance.fail(InternalError("died"))
    put_off, answered = bench.runner.finished[-1][2]
    assert put_off is None
    assert answered.error.message == "died"
    assert bench.quarantine.examine(make.request(b"evil"))[1] is not None


def test_neighbours_of_a_killer_in_a_model_that_runs_many_are_cleared_one_at_a_time(make: SimpleNamespace) -> None:
    bench = Bench(make, is_decoupled=True)
    for _ in range(5):
        bench.quarantine.blame([make.request(b"evil"), make.request(b"good")])
    _, [good] = bench.execute(b"good")
    bench.instance.execute(Batch([make.request(b"evil")], 1, 0))
    [put_off] = bench.runner.finished[-1][2]
    assert "tried one at a time" in put_off.error.message
    assert put_off.error.kind == ErrorKind.UNAVAILABLE
    bench.execute(b"fine")
    bench.instance.on_response((messages.RESPONSE, good[0], answer("OUT"), True))
    for was_tried in (False, True):
        assert bench.quarantine.examine(make.request(b"evil"))[1] is None, was_tried
        bench.execute(b"fine")
        bench.execute(b"evil")
        bench.quarantine.blame(bench.instance.running)
        bench.instance.fail(InternalError("died"))
    assert "killed 3 worker processes" in bench.quarantine.examine(make.request(b"evil"))[1].message  # type: ignore[union-attr]
    assert bench.quarantine.examine(make.request(b"fine"))[1] is None
    assert bench.quarantine.suspects[fingerprint_of(make.request(b"fine"))].kills == 1, "it was blamed once"


def test_one_that_is_on_trial_while_another_kills_the_worker_is_tried_again(make: SimpleNamespace) -> None:
    bench = Bench(make, is_decoupled=True)
    for _ in range(2):
        bench.quarantine.blame([make.request(b"luck"), make.request(b"good")])
    bench.execute(b"luck")
    bench.execute(b"evil")
    bench.quarantine.blame(bench.instance.running)
    bench.instance.fail(InternalError("died"))
    _, [luck] = bench.execute(b"luck")
    bench.instance.on_response((messages.RESPONSE, luck[0], answer("OUT"), True))
    assert fingerprint_of(make.request(b"luck")) not in bench.quarantine.suspects
    assert bench.quarantine.suspects[fingerprint_of(make.request(b"evil"))].kills == 1


def test_a_trial_ends_with_the_first_response_of_a_stream(make: SimpleNamespace) -> None:
    bench = Bench(make, is_decoupled=True)
    for _ in range(2):
        bench.quarantine.blame([make.request(b"long"), make.request(b"good")])
    _, [long] = bench.execute(b"long")
    bench.instance.on_response((messages.RESPONSE, long[0], answer("OUT"), False))
    _, [good] = bench.execute(b"good")
    assert good[2][0][3] == b"good", "it need not wait for the end of the stream"
    bench.instance.on_response((messages.RESPONSE, good[0], answer("OUT"), True))
    bench.instance.on_response((messages.RESPONSE, long[0], None, True))
    assert not bench.quarantine.suspects


def test_one_that_kills_behind_its_first_response_is_convicted_and_not_who_is_tried_meanwhile(
    make: SimpleNamespace,
) -> None:
    bench = Bench(make, is_decoupled=True)
    for _ in range(2):
        bench.quarantine.blame([make.request(b"evil"), make.request(b"good")])

    def run(first: bytes, second: bytes) -> None:
        """Until the worker dies under the first, which has given a response."""
        _, [begun] = bench.execute(first)
        bench.instance.on_response((messages.RESPONSE, begun[0], answer("OUT"), False))
        bench.execute(second)
        bench.quarantine.blame(bench.instance.running)
        bench.instance.fail(InternalError("died"))

    run(b"evil", b"good")
    assert bench.quarantine.examine(make.request(b"good"))[1] is None
    run(b"evil", b"fine")
    assert "killed 3 worker processes" in bench.quarantine.examine(make.request(b"evil"))[1].message  # type: ignore[union-attr]
    for innocent in (b"good", b"fine"):
        assert bench.quarantine.examine(make.request(innocent))[1] is None, innocent


def test_a_trial_ends_with_its_request_whatever_became_of_it(make: SimpleNamespace) -> None:
    bench = Bench(make, is_decoupled=True)
    for _ in range(2):
        bench.quarantine.blame([make.request(b"evil"), make.request(b"good")])
    bench.execute(b"good")
    bench.results([], error=("internal", "no"))
    _, requests = bench.execute(b"evil")
    assert len(requests) == 1
    bench.instance.fail(InternalError("stopped"))
    bench.execute(b"good")
    assert len(bench.link.sent) == 3


@pytest.mark.parametrize(("sequences", "left"), [("direct", [b"good", b"evil"]), ("oldest", [b"good"])])
def test_nothing_is_taken_out_of_a_batch_whose_places_are_sequences(
    make: SimpleNamespace, sequences: str, left: list[bytes]
) -> None:
    bench = Bench(make, sequences=sequences)
    for _ in range(3):
        bench.quarantine.blame([make.request(b"evil")])
    _, requests = bench.execute(b"good", b"evil")
    assert [request[2][0][3] for request in requests] == left


def test_a_request_with_credits_gets_more_as_they_are_taken(make: SimpleNamespace) -> None:
    bench = Bench(make, is_decoupled=True)
    request = make.request()
    request.credits = 3
    bench.instance.execute(Batch([request], 1, 0))
    [credits, (_, _, [form])] = bench.link.sent
    key = form[0]
    assert credits == (messages.CREDITS, key, 3)
    bench.instance.on_response((messages.RESPONSE, key, answer("OUT"), False))
    request.add_credit()
    assert bench.link.sent[2:] == [(messages.CREDITS, key, 1)]
    bench.instance.on_response((messages.RESPONSE, key, None, True))
    request.add_credit()
    assert len(bench.link.sent) == 3, "the worker has forgotten the request"


def test_a_batch_of_refused_requests_never_reaches_the_worker(make: SimpleNamespace) -> None:
    bench = Bench(make)
    for _ in range(3):
        bench.quarantine.blame([make.request(b"evil")])
    bench.instance.execute(Batch([make.request(b"evil")], 1, 0))
    assert bench.link.sent == []
    assert bench.runner.finished[0][2][0].error.kind == ErrorKind.UNAVAILABLE


def test_a_suspect_that_succeeds_is_cleared(make: SimpleNamespace) -> None:
    bench = Bench(make)
    bench.quarantine.blame([make.request(b"luck")])
    bench.execute(b"luck")
    bench.results([answer("OUT")])
    assert not bench.quarantine.suspects
    assert not bench.instance._watched


def test_refusals_survive_the_death_of_the_worker(make: SimpleNamespace) -> None:
    bench = Bench(make)
    for _ in range(3):
        bench.quarantine.blame([make.request(b"evil")])
    bench.execute(b"good", b"evil")
    bench.instance.fail(InternalError("died"))
    first, second = bench.runner.finished[-1][2]
    assert first.error.message == "died"
    assert "refused" in second.error.message
