"""Warm-up runs on every instance before the model serves, with the data its configuration describes."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from trireme.core.elements import encode_bytes
from trireme.registry.loading.warmup import _random_data

CONFIG = """
backend: "python"
max_batch_size: 8
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""


HUGE = "4611686018427387904, 8"


def sample(
    data: str = "zero_data: true",
    batch_size: int = 1,
    count: int = 0,
    dims: str = "4",
    datatype: str = "FP32",
    name: str = "IN",
) -> str:
    return (
        f'model_warmup [ {{ name: "s" batch_size: {batch_size} count: {count} inputs {{ key: "{name}" '
        f"value {{ data_type: TYPE_{datatype} dims: [ {dims} ] {data} }} }} }} ]"
    )


def load(world: Any, text: str, code: str = "", config: str = CONFIG) -> Any:
    async def scenario() -> Any:
        folder = world.add("model", config + text, code=code)
        (folder / "warmup").mkdir(exist_ok=True)
        (folder / "warmup" / "short").write_bytes(bytes(8))
        (folder / "warmup" / "ones").write_bytes(np.ones(4, np.float32).tobytes())
        word = encode_bytes([b"word"])
        for name, data in {"one_word": word, "two_words": word * 2, "three_words": word * 3}.items():
            (folder / "warmup" / name).write_bytes(data)
        (folder / "warmup" / "cut_word").write_bytes((word * 2)[:-2])
        (folder / "warmup" / "cut_length").write_bytes((word * 2)[:-5])
        (folder / "outside").write_bytes(bytes(16))
        (folder / "warmup" / "link").symlink_to(folder / "outside")
        server = await world.started()
        return server, {entry.state: entry.reason for entry in server.registry.index(False, server.registry.scan())}

    return asyncio.run(scenario())


def batches(world: Any) -> list[list[list[int]]]:
    return [instance.batches for instance in world.backends.made[-1].instances]


@pytest.mark.parametrize(
    "data",
    [
        "zero_data: true",
        "random_data: true",
        'input_data_file: "ones"',
        'input_data_file: "x/../ones"',
        'input_data_file: "link"',
    ],
)
def test_sample_runs_before_the_model_is_ready(world: Any, data: str) -> None:
    server, states = load(world, sample(data))
    assert states == {"READY": ""}
    assert batches(world) == [[[1]]]
    [stats] = server.statistics.models("model", "")
    assert stats.execution_count == 1


def test_every_instance_runs_every_iteration(world: Any) -> None:
    load(world, sample(count=2) + "instance_group [ { count: 3 kind: KIND_CPU } ]")
    assert batches(world) == [[[1], [1]]] * 3


def test_sample_of_batch_size_zero_is_left_out(world: Any) -> None:
    load(world, sample(batch_size=0))
    assert batches(world) == [[]]


@pytest.mark.parametrize(
    "batching",
    [
        "",
        "dynamic_batching { }",
        "dynamic_batching { preferred_batch_size: [ 3 ] max_queue_delay_microseconds: 2000000 }",
        "dynamic_batching { preserve_ordering: true }",
        "sequence_batching { direct { } }",
        "sequence_batching { oldest { max_candidate_sequences: 8 } }",
    ],
)
@pytest.mark.parametrize("instance_count", [1, 2])
def test_requests_of_one_row_run_together(world: Any, batching: str, instance_count: int) -> None:
    instances = f"instance_group [ {{ count: {instance_count} kind: KIND_CPU }} ]"
    server, states = load(world, sample(batch_size=4, count=2) + batching + instances)
    assert states == {"READY": ""}
    assert batches(world) == [[[1, 1, 1, 1]] * 2] * instance_count
    [stats] = server.statistics.models("model", "")
    runs = 2 * instance_count
    assert (stats.success.count, stats.inference_count, stats.execution_count) == (4 * runs, 4 * runs, runs)


def test_model_without_batching_runs_one_request(world: Any) -> None:
    load(world, sample(), config=CONFIG.replace("max_batch_size: 8", "max_batch_size: 0"))
    assert batches(world) == [[[1]]]


@pytest.mark.parametrize(("max_batch_size", "batch_size"), [(0, 3), (8, 9), (8, 65537)])
@pytest.mark.parametrize("batching", ["", "dynamic_batching { }"])
def test_more_requests_than_a_batch_takes_fail_the_load(
    world: Any, max_batch_size: int, batch_size: int, batching: str
) -> None:
    config = CONFIG.replace("max_batch_size: 8", f"max_batch_size: {max_batch_size}")
    _, states = load(world, sample(batch_size=batch_size) + (batching if max_batch_size else ""), config=config)
    assert states == {
        "UNAVAILABLE": "Invalid argument: failed to run warmup sample 's': "
        f"batch size {batch_size} for 'model_0', max allowed is {max_batch_size}; "
    }


def test_more_requests_than_the_server_makes_fail_the_load(world: Any) -> None:
    config = CONFIG.replace("max_batch_size: 8", "max_batch_size: 100000")
    _, states = load(world, sample(batch_size=65537), config=config)
    assert "batch_size 65537 of a sample of model 'model' is more than 65536" in states["UNAVAILABLE"]


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (
            "three_words",
            "unexpected number of string elements 3 for inference input 'IN' for model 'model', expecting 2",
        ),
        ("one_word", "expected 2 string elements for inference input 'IN' for model 'model', got 1"),
        (
            "cut_word",
            "incomplete string data for inference input 'IN', expecting string of length 4 but only 2 bytes available",
        ),
        (
            "cut_length",
            "incomplete string length indicator for inference input 'IN' for model 'model', expecting 4 bytes but only "
            "3 bytes available",
        ),
    ],
)
def test_file_with_other_strings_than_the_shape_says_fails_the_load(world: Any, file: str, reason: str) -> None:
    config = CONFIG.replace("TYPE_FP32 dims: [ 4 ]", "TYPE_STRING dims: [ 2 ]")
    _, states = load(world, sample(f'input_data_file: "{file}"', dims="2", datatype="STRING"), config=config)
    assert states == {"UNAVAILABLE": f"Invalid argument: failed to run warmup sample 's': {reason}; "}
    assert world.backends.made[0].is_stopped


def test_file_with_the_right_strings_runs(world: Any) -> None:
    config = CONFIG.replace("TYPE_FP32 dims: [ 4 ]", "TYPE_STRING dims: [ 2 ]")
    _, states = load(world, sample('input_data_file: "two_words"', dims="2", datatype="STRING"), config=config)
    assert states == {"READY": ""}


def test_traffic_after_the_warm_up_is_not_held_back(world: Any) -> None:
    async def scenario() -> None:
        world.add("model", CONFIG + sample(batch_size=4) + "dynamic_batching { }")
        server = await world.started()
        assert (await world.infer(server, "model", rows=1)).error is None

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            sample(dims="-1"),
            "warmup setting expects all variable-size dimensions are specified for input 'IN'",
        ),
        (sample(data=""), "warmup setting expects input 'IN' to have input_data_type set"),
        (
            sample(data='input_data_file: "short"'),
            "warmup setting expects 16 bytes, but the data provided from shortonly has 8 bytes",
        ),
        (
            sample(datatype="INT32"),
            "inference input 'IN' data-type is 'INT32', but model 'model' expects 'FP32'",
        ),
        (sample(dims="5"), "unexpected shape for input 'IN' for model 'model'. Expected [4], got [5]"),
        (sample(dims="4, 1"), "unexpected shape for input 'IN' for model 'model'. Expected [4], got [4,1]"),
        (sample(name="OTHER"), "model 'model' needs input(s) that the sample lacks: IN"),
        (
            sample(data='input_data_file: "../outside"'),
            "warmup data file '../outside' must stay within the model's folder 'warmup'",
        ),
        (
            sample(data='input_data_file: "/etc/passwd"'),
            "warmup data file '/etc/passwd' must stay within the model's folder 'warmup'",
        ),
    ],
)
def test_bad_sample_fails_the_load(world: Any, text: str, reason: str) -> None:
    _, states = load(world, text)
    assert states == {"UNAVAILABLE": f"Invalid argument: failed to run warmup sample 's': {reason}; "}
    assert world.backends.made[0].is_stopped


@pytest.mark.parametrize("data", ["zero_data: true", "random_data: true", 'input_data_file: "ones"'])
@pytest.mark.parametrize(
    ("dims", "batch_size", "size"), [(HUGE, 1, 2**67), ("268435456, 1", 2, 2**31), ("200000000000, 1", 1, 8 * 10**11)]
)
def test_sample_that_the_memory_cannot_hold_fails_the_load(
    world: Any, data: str, dims: str, batch_size: int, size: int
) -> None:
    config = CONFIG.replace("dims: [ 4 ]", "dims: [ -1, -1 ]")
    _, states = load(world, sample(data, dims=dims, batch_size=batch_size), config=config)
    assert states == {
        "UNAVAILABLE": "Invalid argument: failed to run warmup sample 's': input 'IN' for model 'model' takes "
        f"{size} bytes for all rows; a sample may have 1073741824; "
    }


def test_null_character_in_a_file_name_fails_the_load(world: Any) -> None:
    _, states = load(world, sample(data='input_data_file: "o\\000"'))
    assert "failed to read warmup data file" in states["UNAVAILABLE"]


def test_failing_execution_fails_the_load(world: Any) -> None:
    _, states = load(world, sample(), code="error no weights")
    assert states == {"UNAVAILABLE": "Invalid argument: failed to run warmup sample 's': no weights; "}


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64", "INT8", "UINT64", "BOOL", "BF16"])
def test_random_data_has_the_right_size(datatype: str) -> None:
    sizes = {"FP16": 2, "FP32": 4, "FP64": 8, "INT8": 1, "UINT64": 8, "BOOL": 1, "BF16": 2}
    assert len(_random_data(datatype, 6, 6 * sizes[datatype])) == 6 * sizes[datatype]
