"""The identity backend: what comes back, how long it takes, what it counts, and what it refuses to load."""

from __future__ import annotations

import asyncio
import mmap
from typing import Any

import numpy as np
import pytest

from trireme.core.errors import InvalidArgumentError
from trireme.core.tensor import Tensor

IDENTITY = """
backend: "identity" max_batch_size: 8
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
TWO = """
backend: "identity"
input [ { name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] optional: true },
        { name: "INPUT1" data_type: TYPE_STRING dims: [ 2 ] optional: true } ]
output [ { name: "OUTPUT1" data_type: TYPE_STRING dims: [ 2 ] },
         { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] } ]
"""


def with_parameter(pbtxt: str, **parameters: str) -> str:
    return pbtxt + "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n' for key, value in parameters.items()
    )


def test_output_is_the_input_and_the_answer_has_the_example_parameters(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(IDENTITY).start()
        sent = model.send({"INPUT0": np.array([[1, 2]], np.float32)})
        (response,) = sent.responses  # without a delay it is there at once
        assert sent.values("OUTPUT0") == [[[1.0, 2.0]]]
        assert response.is_final
        assert response.parameters == {"param0": "an example string parameter", "param1": 42, "param2": False}
        assert model.stats.inference_count == 1

    run(work)


def test_outputs_find_their_input_by_number(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(TWO).start()
        sent = model.send({"INPUT0": np.array([7], np.int32), "INPUT1": np.array([b"a", b"b"], object)})
        assert [tensor.name for tensor in sent.responses[0].outputs] == ["OUTPUT1", "OUTPUT0"]
        assert (sent.values("OUTPUT0"), sent.values("OUTPUT1")) == ([[7]], [[b"a", b"b"]])

    run(work)


def test_tensors_with_names_of_their_own_are_paired_in_order(bench: Any, run: Any) -> None:
    pbtxt = IDENTITY.replace('"INPUT0"', '"QUESTION"').replace('"OUTPUT0"', '"ANSWER"')

    async def work() -> None:
        model = await bench(pbtxt).start()
        sent = model.send({"QUESTION": np.array([[4]], np.float32)})
        assert sent.values("ANSWER") == [[[4.0]]]

    run(work)


def test_only_requested_outputs_are_made(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(TWO).start()
        inputs = {"INPUT0": np.array([7], np.int32), "INPUT1": np.array([b"a", b"b"], object)}
        sent = model.send(inputs, requested_outputs=("OUTPUT0",))
        assert [tensor.name for tensor in sent.responses[0].outputs] == ["OUTPUT0"]

    run(work)


def test_optional_input_that_is_absent_becomes_zeros(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(TWO).start()
        sent = model.send({"INPUT1": np.array([b"a", b"b"], object)})
        assert sent.values("OUTPUT0") == [[0]]
        sent = model.send({"INPUT0": np.array([7], np.int32)})
        assert sent.values("OUTPUT1") == [[b"", b""]]

    run(work)


def test_clients_own_memory_is_copied(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(IDENTITY).start()
        region = mmap.mmap(-1, 4)
        region[:] = np.float32(1).tobytes()
        view = memoryview(region)
        sent = model.send({"INPUT0": Tensor("INPUT0", "FP32", (1, 1), view)})
        region[:] = np.float32(2).tobytes()
        assert sent.values("OUTPUT0") == [[[1.0]]]

    run(work)


def test_input_bytes_are_counted_as_a_metric_until_the_model_is_gone(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(IDENTITY).start()
        (family,) = model.metrics._families.values()
        assert (family.name, family.kind) == ("input_byte_size_counter", "counter")
        (series,) = family.series.values()
        assert series.labels == 'model="m",version="3"'
        model.send({"INPUT0": np.zeros((1, 4), np.float32)})
        model.send({"INPUT0": np.zeros((2, 4), np.float32)}, batch_size=2)
        assert series.value == 48
        await model.backend.stop()
        assert model.metrics._families == {}
        assert model.instance_names == []

    run(work)


def test_execution_lasts_as_long_as_its_parameter_says(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(with_parameter(IDENTITY, execute_delay_ms="30")).start()
        loop = asyncio.get_running_loop()
        began = loop.time()
        first = model.send({"INPUT0": np.zeros((1, 1), np.float32)})
        second = model.send({"INPUT0": np.zeros((1, 1), np.float32)})
        assert first.responses == []
        await first.all()
        assert loop.time() - began >= 0.029
        await second.all()
        assert loop.time() - began >= 0.058  # one instance, one after the other

    run(work)


def test_delay_grows_with_the_number_of_the_instance(bench: Any, run: Any) -> None:
    pbtxt = with_parameter(IDENTITY, execute_delay_ms="20", instance_wise_delay_multiplier="2")

    async def work() -> None:
        model = await bench(pbtxt + "instance_group { count: 3 }").start()
        delays = [instance._delay_s for instance in model.instances]
        assert delays == [0.02, 0.04, 0.08]

    run(work)


def test_load_lasts_as_long_as_its_parameter_says(bench: Any, run: Any) -> None:
    async def work() -> None:
        loading = asyncio.ensure_future(bench(with_parameter(IDENTITY, creation_delay_sec="1")).start())
        done, _ = await asyncio.wait([loading], timeout=0.9)
        assert not done
        await asyncio.wait_for(loading, 5)

    run(work)


def test_instances_are_named_and_resized_like_others(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(with_parameter(IDENTITY, execute_delay_ms="20") + "instance_group { count: 2 }").start()
        assert model.instance_names == ["m_0_0", "m_0_1"]
        assert await model.backend.is_ready()
        running = [model.send({"INPUT0": np.zeros((1, 1), np.float32)}) for _ in range(2)]
        model.message.instance_group[0].count = 1
        await model.backend.resize(model.config())
        assert model.instance_names == ["m_0_0"]
        assert all(sent.is_over.is_set() for sent in running)  # the removed instance ended what it had
        model.message.instance_group[0].count = 3
        await model.backend.resize(model.config())
        assert model.instance_names == ["m_0_0", "m_0_1", "m_0_2"]

    run(work)


def test_passive_instances_get_no_requests(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(IDENTITY + "instance_group [ { count: 1 }, { count: 1 passive: true } ]").start()
        assert model.instance_names == ["m_0_0"]

    run(work)


def test_cancelled_execution_frees_its_instance_at_once(bench: Any, run: Any) -> None:
    async def work() -> None:
        model = await bench(with_parameter(IDENTITY, execute_delay_ms="60000")).start()
        sent = model.send({"INPUT0": np.zeros((1, 1), np.float32)})
        sent.request.cancel()
        await sent.all()
        assert sent.values("OUTPUT0") == [[[0.0]]]
        assert model.inflight_count == 0

    run(work)


@pytest.mark.parametrize(
    ("pbtxt", "text"),
    [
        (IDENTITY.replace('"OUTPUT0"', '"OUTPUT1"'), "expected input and output indices to match"),
        (
            IDENTITY.replace(
                'output [ { name: "OUTPUT0" data_type: TYPE_FP32', 'output [ { name: "OUTPUT0" data_type: TYPE_FP16'
            ),
            "expected input and output datatype to match, got TYPE_FP32 and TYPE_FP16",
        ),
        (
            TWO.replace("TYPE_STRING dims: [ 2 ] }", "TYPE_STRING dims: [ 3 ] }"),
            "expected input and output shape to match, got [2] and [3]",
        ),
        (
            IDENTITY + 'input [ { name: "INPUT1" data_type: TYPE_FP32 dims: [ -1 ] } ]',
            "model configuration must have equal input/output pairs",
        ),
        (
            with_parameter(IDENTITY, execute_delay_ms="soon"),
            "parameter 'execute_delay_ms' of model 'm' must be an integer that is not negative, got 'soon'",
        ),
    ],
)
def test_configuration_that_cannot_be_served_is_refused(bench: Any, run: Any, pbtxt: str, text: str) -> None:
    async def work() -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            await bench(pbtxt).start()
        assert caught.value.message == text

    run(work)


def test_reshaped_tensors_are_compared_as_the_model_sees_them(bench: Any, run: Any) -> None:
    pbtxt = IDENTITY.replace(
        'output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }',
        'output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1, -1 ] reshape { shape: [ -1 ] } }',
    )

    async def work() -> None:
        assert (await bench(pbtxt).start()).instance_names == ["m_0"]

    run(work)
