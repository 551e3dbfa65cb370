"""Ctrl+C while a model is debugged: what it interrupts, and that no message and no answer is lost."""

from __future__ import annotations

import json
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from meanwhile import meanwhile
from waiting import until

from trireme.backends.python.channel import messages

ANSWER = "return [pb_utils.InferenceResponse([]) for _ in requests]"
REQUEST = (1, "", [], (), 0, 0, 0, {}, None)
TRACE = json.dumps({"traceparent": "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"})
PRESS_IN = """
        import signal, time
        from trireme.backends.python.channel import messages
        from trireme.backends.python.worker import connection
        def pressing(function, state):
            def call(*arguments):
                result = function(*arguments)
                if state:
                    state.clear()
                    signal.raise_signal(signal.SIGINT)
                return result
            return call
"""
"""Has Ctrl+C come inside of a function of the worker, once per time that something is put into the state."""


def test_ctrl_c_while_debugging_interrupts_the_model(start: Callable[..., Any]) -> None:
    worker = start(
        """
        import time
        class TritonPythonModel:
            def execute(self, requests):
                print("begun", flush=True)
                time.sleep(60)
        """,
        is_debug=True,
    )
    for _ in range(2):
        worker.execute()
        assert worker.process.stdout is not None
        assert worker.process.stdout.readline() == "begun\n"
        worker.process.send_signal(signal.SIGINT)
        assert worker.receive()[3][1].startswith("KeyboardInterrupt")


def test_a_handler_that_a_debugged_model_sets_stays_between_its_requests(start: Callable[..., Any]) -> None:
    worker = start(
        """
        import signal
        class TritonPythonModel:
            def initialize(self, args):
                signal.signal(signal.SIGINT, lambda number, frame: print("mine", flush=True))
            def execute(self, requests):
                return [pb_utils.InferenceResponse([]) for _ in requests]
        """,
        is_debug=True,
    )
    assert worker.process.stdout is not None
    for _ in range(2):
        worker.execute()
        assert worker.receive()[0] == messages.RESULTS
        heard: list[Any] = []
        until_s = time.monotonic() + 10
        while not heard and time.monotonic() < until_s:  # the first may still come while the request is handled
            worker.process.send_signal(signal.SIGINT)
            heard, _, _ = select.select([worker.process.stdout], [], [], 0.2)
        assert heard
        assert worker.process.stdout.readline() == "mine\n"


def test_the_handler_of_a_debugger_does_not_stay_between_requests(start: Callable[..., Any]) -> None:
    worker = start(
        """
        import io, pdb, signal
        class TritonPythonModel:
            def initialize(self, args):
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # as it is in workers of a server
            def execute(self, requests):
                pdb.Pdb(stdin=io.StringIO("continue\\n"), stdout=io.StringIO()).set_trace()
                return [pb_utils.InferenceResponse([]) for _ in requests]
        """,
        is_debug=True,
    )
    for _ in range(2):
        worker.execute()
        assert worker.receive()[0] == messages.RESULTS
    ignored = 1 << (signal.SIGINT - 1)

    def is_ignored() -> bool:
        status = Path(f"/proc/{worker.process.pid}/status").read_text()
        return bool(int(status.split("SigIgn:")[1].split()[0], 16) & ignored)

    until(is_ignored)


def test_ctrl_c_while_debugging_cuts_no_answer(start: Callable[..., Any]) -> None:
    worker = start(f"class TritonPythonModel:\n    def execute(self, requests): {ANSWER}", is_debug=True)
    with pressed(worker):
        for _ in range(1500):
            worker.execute()
            assert worker.receive()[0] == messages.RESULTS
    assert worker.process.poll() is None


def test_ctrl_c_while_frames_are_read_loses_none_and_ends_the_wait_behind_them(start: Callable[..., Any]) -> None:
    worker = start(
        PRESS_IN
        + """
        state = []
        connection._loads = pressing(connection._loads, state)
        class TritonPythonModel:
            def execute(self, requests):
                if requests[0].request_id() == "call":
                    state.append(1)
                    pb_utils.InferenceRequest(model_name="other", requested_output_names=[], inputs=[]).exec()
                    time.sleep(60)
                return [pb_utils.InferenceResponse([])]
        """,
        is_debug=True,
    )
    for first in (1, 4):
        worker.send((messages.EXECUTE, first, [(first, "call", *REQUEST[2:])]))
        call = worker.receive()
        assert call[0] == messages.CALL
        answer = (messages.CALL_RESPONSE, call[1], ((), None, None), True)
        batches = [(messages.EXECUTE, first + 1, [REQUEST]), (messages.EXECUTE, first + 2, [REQUEST])]
        worker.sock.sendall(b"".join(map(messages.encode, (answer, *batches))))
        kind, batch, _, error, *_ = worker.receive()
        assert (kind, batch) == (messages.RESULTS, first)
        assert error[1].startswith("KeyboardInterrupt")
        assert [worker.receive()[:2] for _ in batches] == [(messages.RESULTS, first + 1), (messages.RESULTS, first + 2)]


def test_ctrl_c_ends_the_wait_for_another_model_whose_late_answer_is_dropped(start: Callable[..., Any]) -> None:
    worker = start(
        """
        class TritonPythonModel:
            def execute(self, requests):
                if requests[0].request_id() == "call":
                    pb_utils.InferenceRequest(model_name="other", requested_output_names=[], inputs=[]).exec()
                return [pb_utils.InferenceResponse([])]
        """,
        is_debug=True,
    )
    worker.send((messages.EXECUTE, 1, [(1, "call", *REQUEST[2:])]))
    call = worker.receive()
    worker.process.send_signal(signal.SIGINT)
    assert worker.receive()[3][1].startswith("KeyboardInterrupt")
    worker.send((messages.CALL_RESPONSE, call[1], ((), None, None), True))
    worker.execute()
    assert worker.receive()[3] is None


def test_ctrl_c_ends_the_wait_while_a_thread_of_the_model_reads(start: Callable[..., Any]) -> None:
    worker = start(
        """
        import threading, time
        call = lambda: pb_utils.InferenceRequest(model_name="other", requested_output_names=[], inputs=[]).exec()
        class TritonPythonModel:
            def execute(self, requests):
                thread = threading.Thread(target=call, daemon=True)
                thread.start()
                while not pb_utils_link()._is_led:
                    time.sleep(0.001)
                call()
        def pb_utils_link():
            from trireme.backends.python.pb_utils import runtime
            return runtime.current().channel
        """,
        is_debug=True,
    )
    worker.execute()
    calls = [worker.receive(), worker.receive()]
    assert [call[0] for call in calls] == [messages.CALL, messages.CALL]
    worker.process.send_signal(signal.SIGINT)
    assert worker.receive()[3][1].startswith("KeyboardInterrupt")
    worker.send((messages.CALL_RESPONSE, calls[0][1], ((), None, None), True))
    worker.send((messages.CHECK_READY, 1))
    assert worker.receive()[0] == messages.READINESS


def test_ctrl_c_while_a_response_is_sent_lets_it_leave_and_comes_when_the_model_goes_on(
    start: Callable[..., Any],
) -> None:
    worker = start(
        PRESS_IN
        + """
        state = []
        messages.encode = pressing(messages.encode, state)
        class TritonPythonModel:
            def execute(self, requests):
                sender = requests[0].get_response_sender()
                state.append(1)
                sender.send(pb_utils.InferenceResponse([])) or time.sleep(60)
        """,
        is_debug=True,
        is_decoupled=True,
    )
    worker.execute()
    assert worker.receive()[:2] == (messages.RESPONSE, 1)
    kind, _, _, error, *_ = worker.receive()
    assert kind == messages.RESULTS
    assert error[1].startswith("KeyboardInterrupt")
    assert "model.py" in error[1]


def test_ctrl_c_while_a_finalizer_posts_is_not_lost_and_loses_nothing(start: Callable[..., Any]) -> None:
    worker = start(
        PRESS_IN
        + """
        state = []
        messages.encode = pressing(messages.encode, state)
        class TritonPythonModel:
            def execute(self, requests):
                self.senders = [request.get_response_sender() for request in requests]
                if requests[0].request_id() == "drop":
                    sender = self.kept
                    self.senders = None
                    state.append(1)
                    del self.kept, sender  # its finalizer sends the last response
                    time.sleep(60)
                self.kept = self.senders.pop()
        """,
        is_debug=True,
        is_decoupled=True,
    )
    worker.execute()
    assert worker.receive()[:2] == (messages.RESULTS, 1)
    worker.send((messages.EXECUTE, 2, [(2, "drop", *REQUEST[2:])]))
    answered = worker.receive()
    assert (answered[:2], answered[3]) == ((messages.RESPONSE, 1), True)
    assert worker.receive()[3][1].startswith("KeyboardInterrupt")


def test_ctrl_c_ends_the_wait_of_a_decoupled_model_for_its_reader(start: Callable[..., Any]) -> None:
    worker = start(
        """
        class TritonPythonModel:
            def execute(self, requests):
                sender = requests[0].get_response_sender()
                for _ in range(3):
                    sender.send(pb_utils.InferenceResponse([]))
        """,
        is_debug=True,
        is_decoupled=True,
    )
    for key in (1, 2):
        worker.send((messages.CREDITS, key, 1))
        worker.send((messages.EXECUTE, key, [(key, *REQUEST[1:])]))
        assert worker.receive()[:2] == (messages.RESPONSE, key)
        worker.process.send_signal(signal.SIGINT)
        kind, batch, _, error, *_ = worker.receive()
        assert (kind, batch) == (messages.RESULTS, key)
        assert error[1].startswith("KeyboardInterrupt")


def test_ctrl_c_while_a_trace_is_entered_or_left_does_not_lose_the_answer(start: Callable[..., Any]) -> None:
    worker = start(
        PRESS_IN
        + """
        from opentelemetry import context
        entering, leaving = [], []
        context.attach = pressing(context.attach, entering)
        context.detach = pressing(context.detach, leaving)
        class TritonPythonModel:
            def initialize(self, args):
                entering.append(1)
            def execute(self, requests):
                leaving.append(1)
                return [pb_utils.InferenceResponse([])]
        """,
        is_debug=True,
    )
    worker.send((messages.EXECUTE, 1, [(*REQUEST[:-1], TRACE)]))
    assert worker.receive()[3][1].startswith("KeyboardInterrupt")
    worker.send((messages.EXECUTE, 2, [(*REQUEST[:-1], TRACE)]))
    assert worker.receive()[1:4] == (2, [([], None, None)], None)


def test_a_trace_that_cannot_be_entered_is_an_error_of_the_batch(start: Callable[..., Any]) -> None:
    worker = start(f"import opentelemetry\nclass TritonPythonModel:\n    def execute(self, requests): {ANSWER}")
    worker.send((messages.EXECUTE, 1, [(*REQUEST[:-1], "no JSON")]))
    assert "JSONDecodeError" in worker.receive()[3][1]


def test_ctrl_c_while_readiness_fails_does_not_lose_the_answer(start: Callable[..., Any]) -> None:
    worker = start(
        PRESS_IN
        + """
        import traceback
        state = []
        traceback.extract_tb = pressing(traceback.extract_tb, state)
        class TritonPythonModel:
            def is_ready(self):
                state.append(1)
                raise RuntimeError("not yet")
        """,
        is_debug=True,
    )
    worker.send((messages.CHECK_READY, 7))
    assert worker.receive()[:3] == (messages.READINESS, 7, False)


def test_a_debuggers_tracing_is_left_alone(start: Callable[..., Any]) -> None:
    worker = start(
        PRESS_IN
        + """
        import sys
        state = []
        messages.encode = pressing(messages.encode, state)
        def tracing(frame, event, argument):
            return None
        class TritonPythonModel:
            def execute(self, requests):
                sys.settrace(tracing)
                state.append(1)
                pb_utils.Logger.log_info("said")
                is_left = sys.gettrace() is tracing
                try:
                    pb_utils.InferenceRequest(model_name="other", requested_output_names=[], inputs=[]).exec()
                except KeyboardInterrupt:
                    raise RuntimeError(f"at the wait, {is_left}")
        """,
        is_debug=True,
    )
    worker.execute()
    assert worker.receive()[0] == messages.LOG
    assert worker.receive()[0] == messages.CALL
    assert worker.receive()[3][1].startswith("RuntimeError: at the wait, True")


def test_ctrl_c_held_down_cuts_nothing_of_calls_and_streams(start: Callable[..., Any]) -> None:
    worker = start(
        """
        class TritonPythonModel:
            def execute(self, requests):
                sender = requests[0].get_response_sender()
                for _ in range(2):
                    pb_utils.InferenceRequest(model_name="other", requested_output_names=[], inputs=[]).exec()
                    sender.send(pb_utils.InferenceResponse([]))
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """,
        is_debug=True,
        is_decoupled=True,
    )
    interrupted = 0
    with pressed(worker):
        for key in range(1, 400):
            worker.send((messages.EXECUTE, key, [(key, *REQUEST[1:])]))
            is_final, responses = False, 0
            while (message := worker.receive())[0] != messages.RESULTS:
                if message[0] == messages.CALL:
                    worker.send((messages.CALL_RESPONSE, message[1], ((), None, None), True))
                elif message[0] == messages.RESPONSE:
                    assert (message[1], is_final) == (key, False)
                    is_final = message[3]
                    responses += message[2] is not None
            assert message[1] == key
            assert message[3] is not None or (is_final and responses == 2)
            interrupted += message[3] is not None
    assert interrupted
    assert worker.process.poll() is None


def pressed(worker: Any) -> AbstractContextManager[threading.Event]:
    """Ctrl+C is held down inside."""

    def press(is_over: threading.Event) -> None:
        while not is_over.wait(0.0005):
            worker.process.send_signal(signal.SIGINT)

    return meanwhile(press)
