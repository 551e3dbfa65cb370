"""What a response passes on its way to the client: guard, reshape, output_parameters, and in which order."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.shared_memory import SharedMemory as ClientMemory
from typing import Any

import numpy as np
import pytest

from trireme.config.model_config import ModelConfig
from trireme.config.options.trace import TraceSettings
from trireme.core.elements import decode_bytes
from trireme.core.errors import ErrorKind, InternalError, UnavailableError
from trireme.core.request import InferenceRequest, OutputParameters, RegionPlace
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.core.threads.pools import create_threads
from trireme.observe.failure_reasons import OTHER
from trireme.observe.stats import ModelStats
from trireme.proto import model_config_pb2
from trireme.registry.model import Model
from trireme.registry.repository.repositories import ModelId
from trireme.server.long_work import INLINE_CLASSES_BYTES
from trireme.server.response_stages import ResponseStages
from trireme.server.shared_memory import SharedMemory
from trireme.server.trace.settings import TraceSettingsStore
from trireme.server.trace.tracing import Tracing


class Idle:
    """A scheduler that nothing is asked of."""


@pytest.fixture
def memory(client_memory: ClientMemory) -> SharedMemory:
    memory = SharedMemory(is_allowed=True)
    memory.register_system("large", client_memory.name, 0, 8192)
    return memory


def test_regions_have_a_limit(client_memory: ClientMemory) -> None:
    memory = SharedMemory(is_allowed=True, max_regions=2)
    for name in "ab":
        memory.register_system(name, client_memory.name, 0, 8)
    with pytest.raises(UnavailableError, match="--max-shared-memory-regions"):
        memory.register_system("c", client_memory.name, 0, 8)
    memory.unregister("system", "a")
    memory.register_system("c", client_memory.name, 0, 8)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    made = create_threads("test")
    yield made
    made.shutdown()


class Way:
    """The stages of one request, and what comes out of them."""

    def __init__(
        self, threads: ThreadPoolExecutor, output_parameters: OutputParameters | None = None, regions: Any = ()
    ) -> None:
        config = model_config_pb2.ModelConfig(name="m", max_batch_size=4)
        output = config.output.add(name="OUT", data_type=model_config_pb2.TYPE_FP32, dims=[3])
        output.reshape.shape.extend([1, 3])
        scheduler: Any = Idle()
        model = Model(
            ModelId("", "m"),
            1,
            ModelConfig.from_message(config),
            scheduler,
            ModelStats("m", 1),
            labels={"OUT": ["cat", "dog", "fish"]},
        )
        self.answers: list[InferenceResponse] = []
        self.on_answer: Any = lambda: None
        request = self.request = InferenceRequest("m", "", "", {}, self.take)
        request.output_parameters = output_parameters
        self.stats = request.answer_stats = model.stats
        self.pass_on = ResponseStages(model, request, Tracing(TraceSettingsStore(TraceSettings())), regions, threads)

    def take(self, response: InferenceResponse) -> None:
        self.answers.append(response)
        self.on_answer()


def scores(*values: float, is_final: bool = True) -> InferenceResponse:
    """A response of the shape that the model gives it."""
    array = np.array([[values]], np.float32)
    return InferenceResponse([Tensor.from_numpy("OUT", array)], is_final=is_final)


def test_an_output_gets_the_shape_that_the_configuration_promises(threads: ThreadPoolExecutor) -> None:
    way = Way(threads)
    way.pass_on(scores(1, 2, 3))
    assert list(way.answers[0].outputs[0].shape) == [1, 3]


def test_classes_are_found_behind_the_reshape(threads: ThreadPoolExecutor) -> None:
    way = Way(threads, OutputParameters({"OUT": 2}, {}))
    way.pass_on(scores(1, 9, 3))
    (output,) = way.answers[0].outputs
    assert (output.datatype, list(output.shape)) == ("BYTES", [1, 2])
    assert list(decode_bytes(output.data)) == [b"9.000000:1:dog", b"3.000000:2:fish"]


def test_an_output_is_put_where_the_client_wants_it(
    threads: ThreadPoolExecutor, memory: SharedMemory, client_memory: ClientMemory
) -> None:
    places = {"OUT": RegionPlace("large", 16, 12)}
    way = Way(threads, OutputParameters({}, places, {"OUT": memory.target("large", 16, 12)}))
    way.pass_on(scores(1, 2, 3))
    assert way.answers[0].outputs[0].data == b""
    assert bytes(client_memory.buf[16:28]) == np.array([1, 2, 3], np.float32).tobytes()


def test_a_wish_that_cannot_be_fulfilled_is_the_answer_and_not_the_end(
    threads: ThreadPoolExecutor, memory: SharedMemory
) -> None:
    way = Way(threads, OutputParameters({}, {}, {"OUT": memory.target("large", 0, 4)}))
    way.pass_on(scores(1, 2, 3, is_final=False))
    way.pass_on(InferenceResponse.final_mark())
    first, last = way.answers
    assert first.error is not None
    assert "should be at least 12 bytes to hold the results" in first.error.message
    assert [first.is_final, last.is_final] == [False, True]
    assert (way.stats.fail_counts[OTHER], way.request.is_unanswered) == (1, True)


@pytest.mark.parametrize("end", ["refused", "answered"])
def test_the_stages_of_a_request_that_is_over_do_not_lead_back_to_it(threads: ThreadPoolExecutor, end: str) -> None:
    way = Way(threads)
    assert way.request in gc.get_referents(way.pass_on)
    if end == "refused":
        way.pass_on.drop()
    else:
        way.pass_on(scores(1, 2, 3))
    assert way.request not in gc.get_referents(way.pass_on)


class UnknownRegion:
    """Memory of which nobody can tell whether it is still there."""

    @property
    def is_cut_off(self) -> bool:
        raise ValueError("no memory")


@pytest.mark.parametrize("has_output_parameters", [False, True])
def test_a_stage_that_raises_is_an_error_for_the_client_and_a_failure_in_the_statistics(
    threads: ThreadPoolExecutor, has_output_parameters: bool, caplog: pytest.LogCaptureFixture
) -> None:
    way = Way(threads, OutputParameters({"OUT": 1}, {}) if has_output_parameters else None, [UnknownRegion()])
    way.pass_on(scores(1, 2, 3))
    (answer,) = way.answers
    assert answer.is_final
    assert answer.error is not None
    assert answer.error.kind is ErrorKind.INTERNAL
    assert answer.error.message == "the server failed to answer the request: ValueError: no memory"
    assert way.stats.error_count == way.stats.fail_counts[OTHER] == 1
    assert "a response of model 'm' could not be made what its client is to get" in caplog.text


def test_a_long_wish_that_cannot_be_fulfilled_is_counted_too(threads: ThreadPoolExecutor) -> None:
    way = Way(threads, OutputParameters({"OUT": 1}, {}))
    odd = Tensor("OUT", "FP32", (1, 1, 3), bytes(INLINE_CLASSES_BYTES + 2))

    async def scenario() -> None:
        answered = asyncio.Event()
        way.on_answer = answered.set
        way.pass_on(InferenceResponse([odd]))
        await answered.wait()

    asyncio.run(asyncio.wait_for(scenario(), 30))
    assert way.answers[0].error is not None
    assert way.stats.fail_counts[OTHER] == 1


def test_an_error_of_the_model_passes_as_it_is(threads: ThreadPoolExecutor) -> None:
    way = Way(threads, OutputParameters({"OUT": 1}, {}))
    failed = InferenceResponse.of_error(InternalError("boom"))
    way.pass_on(failed)
    assert way.answers == [failed]


def test_responses_behind_a_long_search_for_classes_wait_for_it(threads: ThreadPoolExecutor) -> None:
    way = Way(threads, OutputParameters({"OUT": 1}, {}))
    gate = threading.Event()
    for _ in range(2):
        threads.submit(gate.wait, 10)

    async def story() -> None:
        way.pass_on(scores(*range(INLINE_CLASSES_BYTES // 4 + 1), is_final=False))
        way.pass_on(scores(3, 2, 1))
        assert way.answers == []
        gate.set()
        while len(way.answers) < 2:  # noqa: ASYNC110, nobody tells
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(story(), 10))
    assert [answer.is_final for answer in way.answers] == [False, True]
    best = [next(iter(decode_bytes(answer.outputs[0].data))) for answer in way.answers]
    assert best == [b"%f:%d" % (INLINE_CLASSES_BYTES // 4, INLINE_CLASSES_BYTES // 4), b"3.000000:0:cat"]


def test_a_request_whose_memory_was_gone_when_it_was_read_ends_with_one_error(
    threads: ThreadPoolExecutor, memory: SharedMemory
) -> None:
    (region,) = memory.system_regions("large")
    way = Way(threads, regions=[region])
    way.pass_on(InferenceResponse([], is_final=False))
    region._guarded.is_cut_off = True  # what a fault while the memory is read leaves behind
    way.pass_on(InferenceResponse([], is_final=False))
    way.pass_on(InferenceResponse.final_mark())
    assert [answer.is_final for answer in way.answers] == [False, True]
    assert way.answers[1].error is not None
    assert "region 'large' is or was smaller than when it was registered" in way.answers[1].error.message
