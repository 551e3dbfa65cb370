"""Calls to other models from inside a model, in every way a model may make them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from trireme.backends.python.channel import messages

Start = Callable[..., Any]
Form = Callable[..., tuple[Any, ...]]

CALL = """
import asyncio
class TritonPythonModel:
    def request(self, value=1, **options):
        tensor = pb_utils.Tensor("A", np.array([value], np.uint8))
        return pb_utils.InferenceRequest(
            model_name="other", inputs=[tensor], requested_output_names=["B"], **options)
    def answer(self, *values):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array(values))])]
    def value(self, response):
        return response.output_tensors()[0].as_numpy()[0]
"""


def calling(*lines: str, is_async: bool = False) -> str:
    body = "\n".join(f"        {line}" for line in lines)
    keyword = "async def" if is_async else "def"
    return f"{CALL}    {keyword} execute(self, requests):\n{body}\n"


def output(value: int) -> tuple[Any, ...]:
    return ([("B", "UINT8", (1,), bytes([value]))], None, None)


def answered(host: Any) -> list[int]:
    _, _, answers, error, *_ = host.results()
    assert error is None, error
    data = answers[0][0][0][3]
    return list(np.frombuffer(data, np.int64 if len(data) >= 8 else np.uint8))


def test_exec_sends_the_request_and_returns_the_response(serving: Start, form: Form) -> None:
    host = serving(
        calling(
            "r = self.request(7, model_version=3, request_id='x', correlation_id=4, flags=1, timeout=5,",
            "                 parameters={'p': True}).exec()",
            "return self.answer(self.value(r))",
        )
    )
    began_ns = time.monotonic_ns()
    host.execute(form(11))
    kind, call, name, version, request, is_decoupled, start_ns = host.receive()
    assert (kind, name, version, is_decoupled) == (messages.CALL, "other", 3, False)
    assert began_ns < start_ns < time.monotonic_ns()
    assert request == (11, "x", [("A", "UINT8", (1,), b"\x07")], ("B",), 4, 1, 5, {"p": True}, None)
    host.send((messages.CALL_RESPONSE, call, output(8), True))
    assert answered(host) == [8]


def test_parent_is_taken_from_the_trace_where_the_batch_has_several_requests(serving: Start, form: Form) -> None:
    host = serving(
        calling(
            "self.request().exec()",
            "self.request(trace=requests[1].trace()).exec()",
            "return self.answer(1) * 2",
        )
    )
    host.execute(form(11), form(12, trace="ctx"))
    for key, context in ((0, None), (12, "ctx")):
        _, call, _, _, request, *_ = host.receive(messages.CALL)
        assert (request[0], request[8]) == (key, context)
        host.send((messages.CALL_RESPONSE, call, output(0), True))
    host.results()


def test_errors_come_back_inside_the_response(serving: Start, form: Form) -> None:
    host = serving(
        calling(
            "r = self.request().exec()",
            "assert r.has_error() and r.output_tensors() == []",
            "assert r.error().code() == pb_utils.TritonError.UNAVAILABLE",
            "assert r.error().message() == 'not now'",
            "return self.answer(1)",
        )
    )
    host.execute(form())
    host.send((messages.CALL_RESPONSE, host.receive(messages.CALL)[1], ([], (4, "not now"), None), True))
    assert answered(host) == [1]


def test_decoupled_call_is_iterated_and_can_be_iterated_again(serving: Start, form: Form) -> None:
    host = serving(
        calling(
            "responses = self.request().exec(decoupled=True)",
            "first = [len(r.output_tensors()) for r in responses]",
            "again = [len(r.output_tensors()) for r in responses]",
            "assert next(responses, None) is None",
            "assert first == again",
            "return self.answer(*first)",
        )
    )
    host.execute(form())
    call = host.receive(messages.CALL)
    assert call[5] is True
    host.send((messages.CALL_RESPONSE, call[1], output(1), False))
    host.send((messages.CALL_RESPONSE, call[1], output(2), False))
    host.send((messages.CALL_RESPONSE, call[1], None, True))
    assert answered(host) == [1, 1, 0]


def test_single_response_with_the_final_flag_ends_a_decoupled_call(serving: Start, form: Form) -> None:
    host = serving(calling("return self.answer(len(list(self.request().exec(decoupled=True))))"))
    host.execute(form())
    host.send((messages.CALL_RESPONSE, host.receive(messages.CALL)[1], output(1), True))
    assert answered(host) == [1]


def test_decoupled_call_can_be_cancelled(serving: Start, form: Form) -> None:
    host = serving(
        calling(
            "responses = self.request().exec(decoupled=True)",
            "responses.cancel()",
            "n = len(list(responses))",
            "responses.cancel()",
            "return self.answer(n)",
        )
    )
    host.execute(form())
    call = host.receive(messages.CALL)[1]
    host.send((messages.CALL_RESPONSE, call, output(1), False))
    assert host.receive() == (messages.CALL_CANCEL, call)
    host.send((messages.CALL_RESPONSE, call, ([], (7, "cancelled"), None), True))
    assert answered(host) == [2]


def test_calls_from_several_threads_each_get_their_own_answer(serving: Start, form: Form) -> None:
    host = serving(
        "from concurrent.futures import ThreadPoolExecutor\n"
        + calling(
            "with ThreadPoolExecutor(4) as pool:",
            "    values = list(pool.map(lambda i: self.value(self.request(i).exec()), range(4)))",
            "return self.answer(*values)",
        )
    )
    host.execute(form())
    calls = [host.receive(messages.CALL) for _ in range(4)]
    for _, number, _, _, request, *_ in reversed(calls):
        host.send((messages.CALL_RESPONSE, number, output(request[2][0][3][0] + 10), True))
    assert answered(host) == [10, 11, 12, 13]


def test_call_from_a_thread_is_answered_while_the_worker_waits_for_work(serving: Start, form: Form) -> None:
    host = serving(
        """
        import threading
        class TritonPythonModel:
            def execute(self, requests):
                threading.Thread(target=self.later, args=(requests[0].get_response_sender(),), daemon=True).start()
            def later(self, sender):
                request = pb_utils.InferenceRequest(model_name="other", inputs=[], requested_output_names=[])
                sender.send(request.exec(), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """,
        is_decoupled=True,
    )
    host.execute(form(5))
    first, second = sorted((host.receive(), host.receive()))
    assert first[0] == messages.RESULTS
    host.send((messages.CALL_RESPONSE, second[1], output(3), True))
    kind, key, answer, is_final = host.receive()
    assert (kind, key, answer[0][0][3], is_final) == (messages.RESPONSE, 5, b"\x03", True)


def test_batch_that_arrives_during_a_call_is_executed_after_it(serving: Start, form: Form) -> None:
    host = serving(calling("return self.answer(self.value(self.request().exec()))"))
    host.execute(form(1), batch=1)
    call = host.receive(messages.CALL)[1]
    host.execute(form(2), batch=2)
    host.send((messages.CALL_RESPONSE, call, output(1), True))
    assert host.results()[1] == 1
    host.send((messages.CALL_RESPONSE, host.receive(messages.CALL)[1], output(2), True))
    assert host.results()[1] == 2


def test_async_exec_inside_a_loop_that_a_sync_execute_runs(serving: Start, form: Form) -> None:
    host = serving(
        CALL
        + """
    async def both(self):
        first, second = await asyncio.gather(self.request(1).async_exec(), self.request(2).async_exec())
        third = await self.request(3).async_exec()
        return [self.value(r) for r in (first, second, third)]
    def execute(self, requests):
        return self.answer(*asyncio.run(self.both()))
"""
    )
    for _ in range(2):
        host.execute(form())
        calls = [host.receive(messages.CALL)[1] for _ in range(2)]
        for value, call in zip((20, 10), reversed(calls), strict=True):
            host.send((messages.CALL_RESPONSE, call, output(value), True))
        host.send((messages.CALL_RESPONSE, host.receive(messages.CALL)[1], output(30), True))
        assert answered(host) == [10, 20, 30]
    assert host.link._watchers == {}


def test_async_exec_needs_a_running_loop(serving: Start, form: Form) -> None:
    host = serving(calling("self.request().async_exec()"))
    host.execute(form())
    assert host.results()[3][1].startswith("RuntimeError: no running event loop")


def test_cancelled_async_call_cancels_the_called_request(serving: Start, form: Form) -> None:
    host = serving(
        CALL
        + """
    async def give_up(self):
        try:
            await asyncio.wait_for(self.request().async_exec(), 0.01)
        except asyncio.TimeoutError:
            return 1
    def execute(self, requests):
        return self.answer(asyncio.run(self.give_up()))
"""
    )
    host.execute(form())
    call = host.receive(messages.CALL)[1]
    assert host.receive() == (messages.CALL_CANCEL, call)
    host.send((messages.CALL_RESPONSE, call, output(1), True))
    assert answered(host) == [1]


def test_large_answers_come_in_shared_memory_and_go_back(serving: Start, form: Form) -> None:
    host = serving(calling("return self.answer(int(self.request().exec().output_tensors()[0].as_numpy().sum()))"))
    host.execute(form())
    block = host.arena.place(np.ones(50_000, np.uint8).tobytes())
    response = ([("B", "UINT8", (50_000,), block)], None, None)
    host.send((messages.CALL_RESPONSE, host.receive(messages.CALL)[1], response, True))
    assert answered(host) == [50_000]
    assert host.released == [block[:2]]
