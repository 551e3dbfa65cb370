"""EXECUTE: requests as the model sees them, results as the server gets them, and the rules of the return value."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trireme.backends.python.channel import messages

Start = Callable[..., Any]
Form = Callable[..., tuple[Any, ...]]

ECHO = """
class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("Y", tensor.as_numpy())])
            for request in requests for tensor in request.inputs()
        ]
"""


def returning(expression: str) -> str:
    return f"class TritonPythonModel:\n    def execute(self, requests):\n        return {expression}\n"


def tensor(array: Any, name: str = "X") -> tuple[Any, ...]:
    return (name, "FP32", array.shape, array.astype(np.float32).tobytes())


def test_each_request_of_a_batch_gets_its_own_response(serving: Start, form: Form) -> None:
    host = serving(ECHO)
    host.execute(*(form(key, tensor(np.full((1, 2), key))) for key in (5, 6)), batch=9)
    kind, batch, answers, error, *durations = host.results()
    assert (kind, batch, error) == (messages.RESULTS, 9, None)
    assert all(duration > 0 for duration in durations)
    for key, (tensors, failure, parameters) in zip((5, 6), answers, strict=True):
        (name, datatype, shape, data) = tensors[0]
        assert (name, datatype, tuple(shape)) == ("Y", "FP32", (1, 2))
        assert np.frombuffer(data, np.float32).tolist() == [key, key]
        assert failure is None
        assert parameters is None


def test_model_sees_everything_that_came_with_a_request(serving: Start, form: Form) -> None:
    host = serving(
        """
        import json
        class TritonPythonModel:
            def execute(self, requests):
                r = requests[0]
                seen = [r.request_id(), r.correlation_id(), r.flags(), r.timeout(), json.loads(r.parameters()),
                        sorted(r.requested_output_names()), [t.name() for t in r.inputs()], r.trace().get_context()]
                pb_utils.Logger.log_info(json.dumps(seen))
                return [pb_utils.InferenceResponse([])]
        """
    )
    host.execute(
        form(
            1,
            tensor(np.zeros(1), "A"),
            tensor(np.zeros(1), "B"),
            id="rid",
            correlation_id="seq",
            flags=3,
            timeout=7,
            parameters={"a": 1, "b": "two", "c": True, "d": 1.5},
            outputs=("Y", "Z"),
            trace='{"traceparent":"00-1-2-01"}',
        )
    )
    seen = json.loads(host.receive(messages.LOG)[4])
    parameters = {"a": 1, "b": "two", "c": True, "d": 1.5}
    assert seen == ["rid", "seq", 3, 7, parameters, ["Y", "Z"], ["A", "B"], '{"traceparent":"00-1-2-01"}']


def test_outputs_that_nobody_asked_for_are_left_out(serving: Start, form: Form) -> None:
    body = "[pb_utils.InferenceResponse([pb_utils.Tensor(n, np.zeros(1)) for n in 'YZ'], parameters={'k': 1})]"
    host = serving(returning(body))
    host.execute(form(1, outputs=("Z",)))
    tensors, _, parameters = host.results()[2][0]
    assert [entry[0] for entry in tensors if entry[3] is not None] == ["Z"]
    assert parameters == {"k": 1}


def test_error_of_one_request_leaves_the_others_alone(serving: Start, form: Form) -> None:
    host = serving(
        returning(
            "[pb_utils.InferenceResponse([], pb_utils.TritonError('no', pb_utils.TritonError.UNAVAILABLE)),"
            " pb_utils.InferenceResponse([])]"
        )
    )
    host.execute(form(1), form(2))
    _, _, answers, error, *_ = host.results()
    assert error is None
    assert answers[0][1] == (4, "no")
    assert answers[1][1] is None


def test_exception_fails_the_batch_and_the_worker_goes_on(serving: Start, form: Form) -> None:
    host = serving(
        """
        class TritonPythonModel:
            count = 0
            def execute(self, requests):
                self.count += 1
                if self.count == 1:
                    raise ValueError("boom")
                return [pb_utils.InferenceResponse([])]
        """
    )
    path = host.settings["model_file"]
    host.execute(form(1))
    assert host.results()[2:4] == ([], (1, f"ValueError: boom\n\nAt:\n  {path}(9): execute\n"))
    host.execute(form(2))
    assert host.results()[3] is None


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("3", "Expected a list in the execute return, found type '<class 'int'>'."),
        ("()", "Expected a list in the execute return, found type '<class 'tuple'>'."),
        (
            "[]",
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n",
        ),
        (
            "['x']",
            "Expected an 'InferenceResponse' object in the execute function return list, found type '<class 'str'>'.",
        ),
        (
            "[requests[0].set_release_flags(2) or pb_utils.InferenceResponse([])]",
            "Expected a None object in the execute function return list for reschduled request, found type "
            "'<class 'trireme.backends.python.pb_utils.response.InferenceResponse'>'.",
        ),
    ],
)
def test_return_values_that_are_no_answer_fail_the_batch(
    serving: Start, form: Form, expression: str, text: str
) -> None:
    host = serving(returning(expression))
    host.execute(form(1))
    assert host.results()[3] == (1, text)


def test_decoupled_execute_must_return_none(serving: Start, form: Form) -> None:
    host = serving(returning("[pb_utils.InferenceResponse([])]"), is_decoupled=True)
    host.execute(form(1))
    assert host.results()[3] == (
        1,
        "Python model 'model_0_0' is using the decoupled mode and the execute function must return None.",
    )


def test_model_without_execute_fails_at_inference(serving: Start, form: Form) -> None:
    host = serving("class TritonPythonModel: pass")
    host.execute(form(1))
    path = host.settings["model_file"]
    assert host.results()[3] == (1, f"Python model {path} does not implement `execute` method.")


@pytest.mark.parametrize("expression", ["None", "[None]"])
def test_request_without_any_response_is_answered_with_an_error(serving: Start, form: Form, expression: str) -> None:
    host = serving(returning(expression))
    host.execute(form(7))
    kind, key, answer, is_final = host.receive()
    assert (kind, key, is_final) == (messages.RESPONSE, 7, True)
    assert answer[1][0] == 1
    assert "gave no response" in answer[1][1]
    assert host.results()[2:4] == ([None], None)


def test_rescheduled_request_is_given_back_before_the_results(serving: Start, form: Form) -> None:
    host = serving(
        """
        class TritonPythonModel:
            def execute(self, requests):
                requests[0].set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                return [None, pb_utils.InferenceResponse([])]
        """
    )
    host.execute(form(3), form(4))
    assert host.receive() == (messages.RESCHEDULE, 3)
    assert host.results()[2][0] is None


def test_large_tensors_cross_in_shared_memory_and_go_back_with_the_results(serving: Start, form: Form) -> None:
    host = serving(ECHO)
    array = np.arange(50_000, dtype=np.float32)
    for _ in range(3):
        block = host.arena.place(array.tobytes())
        host.execute(form(1, ("X", "FP32", (50_000,), block)))
        data = host.results()[2][0][0][0][3]
        assert type(data) is tuple
        assert np.array_equal(np.frombuffer(host.attachments.view(data), np.float32), array)
        assert host.released.pop() == block[:2]
        host.send((messages.RELEASE, host.attachments.take_released()))
    assert host.arena.used_bytes == 0
    host.execute(form(2))
    host.results()
    assert host.link.arena.used_bytes == 0


def test_array_that_the_model_keeps_stays_valid_and_goes_back_later(serving: Start, form: Form) -> None:
    host = serving(
        """
        class TritonPythonModel:
            kept = None
            def execute(self, requests):
                before, self.kept = self.kept, requests[0].inputs()[0].as_numpy()[:3]
                return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", self.kept if before is None else before)])]
        """
    )
    first = host.arena.place(np.full(10_000, 1, np.float32).tobytes())
    host.execute(form(1, ("X", "FP32", (10_000,), first)))
    host.results()
    assert host.released == []
    second = host.arena.place(np.full(10_000, 2, np.float32).tobytes())
    host.execute(form(2, ("X", "FP32", (10_000,), second)))
    assert np.frombuffer(host.results()[2][0][0][0][3], np.float32).tolist() == [1, 1, 1]
    host.execute(form(3, ("X", "FP32", (10_000,), second)))
    host.results()
    gc.collect()
    assert first[:2] in host.released


def test_memory_of_a_batch_whose_encoding_fails_is_taken_back(serving: Start, form: Form) -> None:
    host = serving(
        """
        class Unprintable:
            def __str__(self):
                raise RuntimeError("unprintable")
        class TritonPythonModel:
            def execute(self, requests):
                big = pb_utils.Tensor("Y", np.zeros(50_000))
                bad = pb_utils.Tensor("Y", np.array([Unprintable()], dtype=object))
                return [pb_utils.InferenceResponse([big]), pb_utils.InferenceResponse([bad])]
        """
    )
    host.execute(form(1), form(2))
    assert "unprintable" in host.results()[3][1]
    assert host.link.arena.used_bytes == 0


def test_cancellation_is_seen_while_executing(serving: Start, form: Form) -> None:
    host = serving(
        """
        class TritonPythonModel:
            def execute(self, requests):
                assert not requests[0].is_cancelled()
                pb_utils.Logger.log_info("waiting")
                while not requests[0].is_cancelled():
                    pass
                assert not requests[1].is_cancelled()
                return [pb_utils.InferenceResponse([]) for _ in requests]
        """
    )
    host.execute(form(1), form(2))
    host.receive(messages.LOG)
    host.send((messages.CANCEL, 1))
    assert host.results()[3] is None
    assert host.worker.runtime.cancelled == set()


def test_execute_that_returns_a_coroutine_unannounced_is_run(serving: Start, form: Form) -> None:
    host = serving(
        """
        class TritonPythonModel:
            def execute(self, requests):
                return self.later(requests)
            async def later(self, requests):
                return [pb_utils.InferenceResponse([]) for _ in requests]
        """
    )
    host.execute(form(1))
    assert host.results()[2:4] == ([([], None, None)], None)


def test_batches_that_arrive_together_are_executed_in_order(serving: Start, form: Form) -> None:
    host = serving(ECHO)
    for batch in range(5):
        host.execute(form(batch, tensor(np.zeros(1))), batch=batch)
    assert [host.results()[1] for _ in range(5)] == [0, 1, 2, 3, 4]
