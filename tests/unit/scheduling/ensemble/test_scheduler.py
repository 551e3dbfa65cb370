"""Ensembles: steps fire when their inputs are known, and the request is answered once, whatever they do."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from trireme.config.model_config import EnsembleStepConfig, TensorConfig
from trireme.core.errors import CancelledError, ErrorKind, InternalError, InvalidArgumentError, UnavailableError
from trireme.core.request import SEQUENCE_START, InferenceRequest
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.observe.stats import ModelStats
from trireme.scheduling.ensemble.scheduler import EnsembleScheduler


def tensor(name: str, data: bytes = b"data") -> Tensor:
    return Tensor(name, "UINT8", (len(data),), data)


def step(model: str, inputs: dict[str, str], outputs: dict[str, str], version: int = -1) -> EnsembleStepConfig:
    return EnsembleStepConfig(model, version, inputs, outputs)


class Kitchen:
    """The ensemble under test, with the requests its steps made, to be answered by the test."""

    def __init__(self, config: Any) -> None:
        self.now_ns = 1_000
        self.calls: list[InferenceRequest] = []
        self.instant: dict[str, Callable[[InferenceRequest], None]] = {}
        self.stats = ModelStats("pipe", 1, clock=lambda: self.now_ns)
        self.scheduler = EnsembleScheduler(config, self.stats, self, clock=lambda: self.now_ns)
        self.answers: list[InferenceResponse] = []

    def infer(self, request: InferenceRequest) -> None:
        self.calls.append(request)
        if request.model_name in self.instant:
            self.instant[request.model_name](request)

    def send(self, **fields: Any) -> InferenceRequest:
        inputs = fields.pop("inputs", None) or {"IN": tensor("IN")}
        request = InferenceRequest("pipe", "", fields.pop("id", "r1"), inputs, self.answers.append)
        for key, value in fields.items():
            setattr(request, key, value)
        self.scheduler.enqueue(request)
        return request

    def called(self) -> list[str]:
        return [request.model_name for request in self.calls]

    def call(self, model: str) -> InferenceRequest:
        return next(request for request in reversed(self.calls) if request.model_name == model)

    def answer(self, model: str, *outputs: Tensor, is_final: bool = True) -> None:
        self.call(model).respond(InferenceResponse(list(outputs), is_final=is_final))

    @property
    def only(self) -> InferenceResponse:
        [answer] = self.answers
        assert answer.is_final
        return answer


@pytest.fixture
def kitchen(config_of: Any) -> Callable[..., Kitchen]:
    def build(*steps: EnsembleStepConfig, outputs: tuple[str, ...] = ("OUT",), **fields: Any) -> Kitchen:
        inputs = fields.pop("inputs", None) or {"IN": TensorConfig("IN", "UINT8", (-1,))}
        named = {name: TensorConfig(name, "UINT8", (-1,)) for name in outputs}
        return Kitchen(
            config_of(
                name="pipe",
                platform="ensemble",
                backend="",
                inputs=inputs,
                outputs=named,
                ensemble_steps=steps,
                **fields,
            )
        )

    return build


CHAIN = (
    step("one", {"x": "IN"}, {"y": "a"}),
    step("two", {"x": "a"}, {"y": "b"}),
    step("three", {"x": "b"}, {"y": "OUT"}),
)
DIAMOND = (
    step("left", {"x": "IN"}, {"y": "a"}),
    step("right", {"x": "IN"}, {"y": "b"}),
    step("join", {"p": "a", "q": "b"}, {"y": "OUT"}),
)
STREAM = (step("many", {"x": "IN"}, {"y": "a"}), step("each", {"x": "a"}, {"y": "OUT"}))


def test_chain_hands_each_step_the_tensor_of_the_one_before_without_copying(kitchen: Any) -> None:
    pipe = kitchen(*CHAIN)
    data = b"payload"
    pipe.send(inputs={"IN": tensor("IN", data)})
    assert pipe.called() == ["one"]
    assert pipe.calls[0].inputs["x"].data is data
    for model in ("one", "two", "three"):
        pipe.answer(model, Tensor("y", "UINT8", (7,), pipe.call(model).inputs["x"].data))
    [output] = pipe.only.outputs
    assert (output.name, output.data is data) == ("OUT", True)
    assert pipe.scheduler.inflight_count == 0


def test_child_requests_carry_what_the_client_said(kitchen: Any) -> None:
    pipe = kitchen(step("one", {"x": "IN"}, {"y": "OUT", "z": "unused"}, version=3))
    request = pipe.send(
        id="r9", correlation_id=7, flags=SEQUENCE_START, priority=2, timeout_us=5, parameters={"temperature": "0.1"}
    )
    child = pipe.calls[0]
    assert (child.id, child.correlation_id, child.flags, child.priority, child.timeout_us) == ("r9", 7, 1, 2, 5)
    assert child.parameters == {"temperature": "0.1"}
    assert (child.model_version, child.requested_outputs, child.parent) == ("3", ("y",), request)


def test_answer_tells_the_sequence_as_triton_does(kitchen: Any) -> None:
    pipe = kitchen(step("one", {"x": "IN"}, {"y": "OUT"}))
    pipe.send(correlation_id="abc", flags=SEQUENCE_START)
    pipe.answer("one", tensor("y"))
    assert list(pipe.only.parameters.items()) == [
        ("sequence_id", "abc"),
        ("sequence_start", True),
        ("sequence_end", False),
    ]


def test_steps_run_in_parallel_and_join_when_both_are_there(kitchen: Any) -> None:
    pipe = kitchen(*DIAMOND)
    pipe.send()
    assert pipe.called() == ["left", "right"]
    pipe.answer("right", tensor("y", b"r"))
    assert pipe.called() == ["left", "right"]
    pipe.answer("left", tensor("y", b"l"))
    assert {name: value.data for name, value in pipe.call("join").inputs.items()} == {"p": b"l", "q": b"r"}
    pipe.answer("join", tensor("y"))
    assert pipe.only.error is None


def test_steps_that_answer_at_once_do_not_end_the_run_early(kitchen: Any) -> None:
    pipe = kitchen(*DIAMOND)
    for model in ("left", "right", "join"):
        pipe.instant[model] = lambda request: request.respond(InferenceResponse([tensor("y")]))
    pipe.send()
    assert pipe.called() == ["left", "right", "join"]
    assert pipe.only.error is None


def test_tensor_may_be_an_output_and_the_input_of_a_later_step(kitchen: Any) -> None:
    pipe = kitchen(step("one", {"x": "IN"}, {"y": "A"}), step("two", {"x": "A"}, {"y": "B"}), outputs=("A", "B"))
    pipe.send()
    pipe.answer("one", tensor("y", b"1"))
    pipe.answer("two", tensor("y", b"2"))
    assert [(output.name, output.data) for output in pipe.only.outputs] == [("A", b"1"), ("B", b"2")]


def test_only_steps_that_lead_to_requested_outputs_run(kitchen: Any) -> None:
    pipe = kitchen(
        step("one", {"x": "IN"}, {"y": "A", "z": "B"}), step("two", {"x": "B"}, {"y": "C"}), outputs=("A", "B", "C")
    )
    pipe.send(requested_outputs=("A", "A"))
    pipe.answer("one", tensor("y"))
    assert pipe.called() == ["one"]
    assert pipe.calls[0].requested_outputs == ("y",)
    assert [output.name for output in pipe.only.outputs] == ["A"]


def test_absent_optional_input_is_not_passed_on(kitchen: Any) -> None:
    inputs = {"IN": TensorConfig("IN", "UINT8", (-1,)), "OPT": TensorConfig("OPT", "UINT8", (-1,), is_optional=True)}
    pipe = kitchen(step("one", {"x": "IN", "o": "OPT"}, {"y": "OUT"}), inputs=inputs)
    pipe.send()
    assert list(pipe.calls[0].inputs) == ["x"]


def test_output_that_a_step_did_not_produce_is_absent_further_on(kitchen: Any) -> None:
    pipe = kitchen(*CHAIN)
    pipe.send()
    pipe.answer("one")
    assert pipe.call("two").inputs == {}
    pipe.answer("two")
    pipe.answer("three")
    assert (pipe.only.outputs, pipe.only.parameters, pipe.only.error) == ([], None, None)


def test_error_of_a_step_is_the_ensembles_with_its_kind(kitchen: Any) -> None:
    pipe = kitchen(*CHAIN)
    pipe.send()
    pipe.call("one").respond(InferenceResponse.of_error(InternalError("boom")))
    assert (pipe.only.error.message, pipe.only.error.kind) == ("in ensemble 'pipe', boom", ErrorKind.INTERNAL)
    assert pipe.called() == ["one"]
    assert pipe.stats.fail_counts == {"REJECTED": 0, "CANCELED": 0, "BACKEND": 0, "OTHER": 2}
    assert pipe.stats.error_count == 1  # for people, who sent one request


def test_step_that_is_refused_is_the_ensembles_error(kitchen: Any) -> None:
    pipe = kitchen(*CHAIN)

    def refuse(request: InferenceRequest) -> None:
        raise InvalidArgumentError("[request id: r1] no such input")

    pipe.instant["one"] = refuse
    pipe.send()
    assert pipe.only.error.message == "in ensemble 'pipe', [request id: r1] no such input"
    assert pipe.only.error.kind is ErrorKind.INVALID_ARGUMENT
    assert pipe.scheduler.inflight_count == 0


def test_failing_step_cancels_those_beside_it_and_later_answers_are_ignored(kitchen: Any) -> None:
    pipe = kitchen(*DIAMOND)
    pipe.send()
    pipe.call("left").respond(InferenceResponse.of_error(InternalError("boom")))
    assert pipe.call("right").is_cancelled
    pipe.answer("right", tensor("y"))
    assert pipe.only.error.message == "in ensemble 'pipe', boom"
    assert pipe.stats.fail_counts["OTHER"] == 1


def test_step_without_any_response_is_a_deadlock(kitchen: Any) -> None:
    pipe = kitchen(*CHAIN)
    pipe.send(id="r5")
    pipe.call("one").respond(InferenceResponse.final_mark())
    assert pipe.only.error.message == (
        "in ensemble 'pipe', [request id: r5] unexpected deadlock, at least one output is not set while no more "
        "ensemble steps can be made"
    )


@pytest.mark.parametrize("is_finished", [False, True])
def test_cancellation_reaches_the_running_steps(kitchen: Any, is_finished: bool) -> None:
    pipe = kitchen(*DIAMOND)
    request = pipe.send()
    for child in pipe.calls:
        child.on_cancel = lambda child: child.respond(InferenceResponse.of_error(CancelledError("")))
    (request.finish if is_finished else request.cancel)()  # finished: its client has all that it wanted
    assert [(child.is_cancelled, child.is_given_up) for child in pipe.calls] == [(True, not is_finished)] * 2
    assert pipe.only.error.kind is ErrorKind.CANCELLED
    assert (pipe.stats.success_count, pipe.stats.fail_counts["CANCELED"]) == ((1, 0) if is_finished else (0, 1))


def test_cancelled_request_fires_no_further_step(kitchen: Any) -> None:
    pipe = kitchen(*CHAIN)
    request = pipe.send()
    request.cancel()
    pipe.answer("one", tensor("y"))
    assert pipe.called() == ["one"]
    assert pipe.only.error.kind is ErrorKind.CANCELLED


def test_each_response_of_a_decoupled_step_becomes_a_response_of_the_ensemble(kitchen: Any) -> None:
    pipe = kitchen(*STREAM, is_decoupled=True)
    pipe.send()
    for data in (b"0", b"1"):
        pipe.answer("many", tensor("y", data), is_final=False)
        pipe.answer("each", tensor("y", pipe.call("each").inputs["x"].data))
    assert [(answer.outputs[0].data, answer.is_final) for answer in pipe.answers] == [(b"0", False), (b"1", False)]
    pipe.call("many").respond(InferenceResponse.final_mark())
    assert (pipe.answers[-1].is_final, pipe.answers[-1].is_empty, len(pipe.answers)) == (True, True, 3)
    assert pipe.stats.success_count == 1


def test_stream_whose_steps_end_after_the_decoupled_one_has_one_final_response(kitchen: Any) -> None:
    pipe = kitchen(*STREAM, is_decoupled=True)
    pipe.send()
    pipe.answer("many", tensor("y", b"0"), is_final=False)
    pipe.answer("many", tensor("y", b"1"))
    first, second = [request for request in pipe.calls if request.model_name == "each"]
    second.respond(InferenceResponse([tensor("y", b"B")]))
    first.respond(InferenceResponse([tensor("y", b"A")]))
    assert [(answer.outputs[0].data, answer.is_final) for answer in pipe.answers] == [(b"B", False), (b"A", True)]


def test_stream_of_instant_steps_loses_nothing(kitchen: Any) -> None:
    pipe = kitchen(*STREAM, is_decoupled=True)
    pipe.instant["each"] = lambda request: request.respond(InferenceResponse([tensor("y", request.inputs["x"].data)]))

    def stream(request: InferenceRequest) -> None:
        for number in range(4):
            request.respond(InferenceResponse([tensor("y", b"%d" % number)], is_final=number == 3))

    pipe.instant["many"] = stream
    pipe.send()
    data = [answer.outputs[0].data for answer in pipe.answers if not answer.is_empty]
    assert data == [b"0", b"1", b"2", b"3"]
    assert [answer.is_final for answer in pipe.answers].count(True) == 1
    assert pipe.answers[-1].is_final


def test_decoupled_step_without_responses_ends_with_a_mark(kitchen: Any) -> None:
    pipe = kitchen(*STREAM, is_decoupled=True)
    pipe.send()
    pipe.call("many").respond(InferenceResponse.final_mark())
    assert pipe.only.is_empty


def test_decoupled_step_with_one_response_serves_an_ensemble_that_is_not_decoupled(kitchen: Any) -> None:
    pipe = kitchen(*STREAM)
    pipe.send()
    pipe.answer("many", tensor("y", b"0"), is_final=False)
    pipe.answer("each", tensor("y", b"0"))
    assert pipe.answers == []
    pipe.call("many").respond(InferenceResponse.final_mark())
    assert pipe.only.outputs[0].data == b"0"


def test_tensor_known_late_joins_iterations_that_wait_for_it(kitchen: Any) -> None:
    pipe = kitchen(
        step("many", {"x": "IN"}, {"y": "a"}),
        step("once", {"x": "IN"}, {"y": "b"}),
        step("join", {"p": "a", "q": "b"}, {"y": "OUT"}),
        is_decoupled=True,
    )
    pipe.send()
    pipe.answer("many", tensor("y", b"0"), is_final=False)
    pipe.answer("many", tensor("y", b"1"))
    assert "join" not in pipe.called()
    pipe.answer("once", tensor("y", b"z"))
    joins = [request for request in pipe.calls if request.model_name == "join"]
    assert sorted(request.inputs["p"].data for request in joins) == [b"0", b"1"]
    for request in joins:
        request.respond(InferenceResponse([tensor("y", request.inputs["p"].data)]))
    assert [answer.is_final for answer in pipe.answers] == [False, True]


def test_error_inside_a_stream_ends_it(kitchen: Any) -> None:
    pipe = kitchen(*STREAM, is_decoupled=True)
    pipe.send()
    pipe.answer("many", tensor("y"), is_final=False)
    pipe.call("each").respond(InferenceResponse.of_error(InternalError("mid")))
    assert pipe.only.error.message == "in ensemble 'pipe', mid"
    assert pipe.call("many").is_cancelled
    pipe.answer("many", tensor("y"), is_final=False)
    assert len(pipe.answers) == 1


def test_step_is_given_no_more_requests_than_its_limit(kitchen: Any) -> None:
    pipe = kitchen(*STREAM, is_decoupled=True, max_inflight_requests=2)
    pipe.send()
    for number in range(4):
        pipe.answer("many", tensor("y", b"%d" % number), is_final=False)
    pipe.call("many").respond(InferenceResponse.final_mark())
    served = 0
    while served < 4:
        running = [request for request in pipe.calls if request.model_name == "each"][served:]
        assert len(running) == min(2, 4 - served)
        running[0].respond(InferenceResponse([tensor("y", running[0].inputs["x"].data)]))
        served += 1
    assert [answer.outputs[0].data for answer in pipe.answers] == [b"0", b"1", b"2", b"3"]
    assert pipe.answers[-1].is_final


def test_statistics_count_one_execution_of_the_requests_batch_size(kitchen: Any) -> None:
    pipe = kitchen(step("one", {"x": "IN"}, {"y": "OUT"}))
    pipe.send(batch_size=3)
    pipe.now_ns += 500
    pipe.answer("one", tensor("y"))
    snapshot = pipe.stats.snapshot()
    assert (snapshot.inference_count, snapshot.execution_count, snapshot.success.count) == (3, 1, 1)
    assert [(batch.batch_size, batch.compute_infer.ns) for batch in snapshot.batches] == [(3, 500)]


def test_stopped_ensemble_refuses_and_waits_for_its_runs(kitchen: Any) -> None:
    pipe = kitchen(step("one", {"x": "IN"}, {"y": "OUT"}))
    pipe.send()

    async def scenario() -> None:
        stopping = asyncio.ensure_future(pipe.scheduler.stop())
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match=r"\[request id: r2\] Server is stopping"):
            pipe.send(id="r2")
        assert not stopping.done()
        pipe.answer("one", tensor("y"))
        await stopping

    asyncio.run(scenario())


def test_a_run_leaves_nothing_to_the_garbage_collector(kitchen: Callable[..., Kitchen]) -> None:
    pipe = kitchen(step("a", {"X": "IN"}, {"Y": "mid"}), step("b", {"X": "mid"}, {"Y": "OUT"}))
    gc.collect()
    gc.disable()
    try:
        pipe.send()
        pipe.answer("a", tensor("Y"))
        pipe.answer("b", tensor("Y"))
        assert pipe.only.error is None
        pipe.calls.clear()
        pipe.answers.clear()
        assert gc.collect() == 0
    finally:
        gc.enable()
