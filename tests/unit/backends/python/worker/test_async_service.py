"""Models whose execute is a coroutine function: batches overlap, calls do not block."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from trireme.backends.python.channel import messages

Start = Callable[..., Any]
Form = Callable[..., tuple[Any, ...]]

WAITS_FOR_OTHER = """
import asyncio
class TritonPythonModel:
    async def execute(self, requests):
        request = pb_utils.InferenceRequest(model_name="other", inputs=[], requested_output_names=[])
        return [await request.async_exec() for _ in requests]
"""


def output(value: int) -> tuple[Any, ...]:
    return ([("B", "UINT8", (1,), bytes([value]))], None, None)


def test_ready_says_that_the_model_is_asynchronous(start_worker: Start) -> None:
    assert start_worker(WAITS_FOR_OTHER).initialize()["is_async"]


def test_batches_overlap_and_end_in_any_order(serving: Start, form: Form) -> None:
    host = serving(WAITS_FOR_OTHER)
    for batch in (1, 2, 3):
        host.execute(form(batch), batch=batch)
    calls = [host.receive(messages.CALL) for _ in range(3)]
    assert [call[4][0] for call in calls] == [1, 2, 3]
    for call in reversed(calls):
        host.send((messages.CALL_RESPONSE, call[1], output(call[4][0]), True))
        _, batch, answers, error, *_ = host.results()
        assert (batch, answers[0][0][0][3], error) == (call[4][0], bytes([call[4][0]]), None)


def test_blocking_exec_inside_a_coroutine_works_and_loses_no_batch(serving: Start, form: Form) -> None:
    host = serving(WAITS_FOR_OTHER.replace("await request.async_exec()", "request.exec()"))
    host.execute(form(1), batch=1)
    call = host.receive(messages.CALL)
    host.execute(form(2), batch=2)
    host.send((messages.CALL_RESPONSE, call[1], output(1), True))
    assert host.results()[1] == 1
    host.send((messages.CALL_RESPONSE, host.receive(messages.CALL)[1], output(2), True))
    assert host.results()[1] == 2


def test_exception_fails_only_its_batch(serving: Start, form: Form) -> None:
    host = serving(
        """
        class TritonPythonModel:
            async def execute(self, requests):
                if requests[0].request_id() == "bad":
                    raise ValueError("boom")
                return [pb_utils.InferenceResponse([]) for _ in requests]
        """
    )
    host.execute(form(1, id="bad"), batch=1)
    host.execute(form(2), batch=2)
    answers = {message[1]: message[3] for message in (host.results(), host.results())}
    path = host.settings["model_file"]
    assert answers == {1: (1, f"ValueError: boom\n\nAt:\n  {path}(7): execute\n"), 2: None}


def test_decoupled_coroutines_stream_side_by_side(serving: Start, form: Form) -> None:
    host = serving(
        """
        import asyncio
        class TritonPythonModel:
            def initialize(self, args):
                self.turn = asyncio.Event()
            async def execute(self, requests):
                sender = requests[0].get_response_sender()
                sender.send(pb_utils.InferenceResponse([]))
                if requests[0].request_id() == "second":
                    self.turn.set()
                await self.turn.wait()
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """,
        is_decoupled=True,
    )
    host.execute(form(1), batch=1)
    assert host.receive() == (messages.RESPONSE, 1, ([], None, None), False)
    host.execute(form(2, id="second"), batch=2)
    assert host.receive() == (messages.RESPONSE, 2, ([], None, None), False)
    rest = [host.receive() for _ in range(4)]
    assert {message[1] for message in rest if message[0] == messages.RESPONSE and message[3]} == {1, 2}
    assert {message[1] for message in rest if message[0] == messages.RESULTS} == {1, 2}


def test_responses_of_a_decoupled_call_are_awaited_one_by_one(serving: Start, form: Form) -> None:
    host = serving(
        """
        class TritonPythonModel:
            async def execute(self, requests):
                request = pb_utils.InferenceRequest(model_name="other", inputs=[], requested_output_names=[])
                count = 0
                async for response in await request.async_exec(decoupled=True):
                    count += 1
                    pb_utils.Logger.log_info(str(count))
                return [pb_utils.InferenceResponse([])]
        """
    )
    host.execute(form(1))
    call = host.receive(messages.CALL)[1]
    for count in (1, 2):
        host.send((messages.CALL_RESPONSE, call, output(count), False))
        assert host.receive(messages.LOG)[4] == str(count)
    host.send((messages.CALL_RESPONSE, call, None, True))
    assert host.results()[3] is None


def test_cancellation_reaches_a_waiting_coroutine(serving: Start, form: Form) -> None:
    host = serving(
        """
        import asyncio
        class TritonPythonModel:
            async def execute(self, requests):
                pb_utils.Logger.log_info("waiting")
                while not requests[0].is_cancelled():
                    await asyncio.sleep(0)
                return [pb_utils.InferenceResponse([])]
        """
    )
    host.execute(form(1))
    host.receive(messages.LOG)
    host.send((messages.CANCEL, 1))
    assert host.results()[3] is None


def test_readiness_is_answered_while_a_batch_runs(serving: Start, form: Form) -> None:
    host = serving(WAITS_FOR_OTHER + "    async def is_ready(self):\n        return False\n")
    host.execute(form(1))
    call = host.receive(messages.CALL)[1]
    assert host.ask((messages.CHECK_READY, 4)) == (messages.READINESS, 4, False, "")
    host.send((messages.CALL_RESPONSE, call, output(1), True))
    host.results()


def test_failing_readiness_check_is_answered_with_the_reason(serving: Start) -> None:
    host = serving(WAITS_FOR_OTHER + "    def is_ready(self):\n        raise RuntimeError('down')\n")
    answer = host.ask((messages.CHECK_READY, 4))
    assert answer[:3] == (messages.READINESS, 4, False)
    assert answer[3].startswith("RuntimeError: down")


def test_finalize_runs_on_the_same_loop_and_the_worker_ends(serving: Start, form: Form) -> None:
    host = serving(
        """
        import asyncio
        class TritonPythonModel:
            async def execute(self, requests):
                self.loop = asyncio.get_running_loop()
                self.background = asyncio.create_task(asyncio.sleep(1000))
                return [pb_utils.InferenceResponse([]) for _ in requests]
            async def finalize(self):
                assert asyncio.get_running_loop() is self.loop
                pb_utils.Logger.log_info("bye")
        """
    )
    host.execute(form(1))
    host.results()
    assert host.ask((messages.FINALIZE,))[4] == "bye"
    assert host.receive() == (messages.FINALIZED,)
    host.thread.join(10)
    assert not host.thread.is_alive()


def test_a_worker_whose_holder_is_gone_goes_back_and_serves_on(serving: Start, form: Form) -> None:
    host = serving(WAITS_FOR_OTHER)
    holder = (*socket.socketpair(), *socket.socketpair())
    socket.send_fds(host.side, [b"\0"], [holder[1].fileno(), holder[3].fileno()])
    for sock in holder:
        sock.close()
    host.send((messages.LEASE, 1))
    host.send((messages.TRIM,))  # the loop looks at both sockets whenever the server's has something
    assert host.receive() == (messages.RETURNED,)
    host.execute(form(1), batch=1)
    host.send((messages.CALL_RESPONSE, host.receive(messages.CALL)[1], output(1), True))
    assert host.results()[1] == 1
