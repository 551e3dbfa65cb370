"""ONNX and OpenVINO models: the framework's own results, batches, auto-complete, and clear errors."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_repository import Served, add_onnx, load_error, place, serve

from trireme.core.errors import ServingError


def test_an_onnx_file_alone_is_served_with_what_the_graph_says(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    add_onnx(place(tmp_path, "add_sub") / "model.onnx")

    async def scenario(served: Served) -> None:
        config = served.config("add_sub")
        assert (config.backend, config.platform) == ("onnxruntime", "onnxruntime_onnx")
        assert config.max_batch_size == 4
        assert config.HasField("dynamic_batching")
        assert [(entry.name, list(entry.dims)) for entry in config.input] == [("A", [3]), ("B", [3])]
        assert [entry.name for entry in config.output] == ["SUM", "DIFF"]
        a = np.arange(6, dtype=np.float32).reshape(2, 3)
        outputs = await served.ask("add_sub", A=a, B=a * 10)
        np.testing.assert_array_equal(outputs["SUM"], a + a * 10)
        np.testing.assert_array_equal(outputs["DIFF"], a - a * 10)

    serve(tmp_path, scenario)


def test_requests_of_a_batch_run_once_and_each_gets_its_rows(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    config = "max_batch_size: 16 dynamic_batching { max_queue_delay_microseconds: 500000 preferred_batch_size: [ 10 ] }"
    config += " instance_group [ { count: 1 kind: KIND_CPU } ]"
    add_onnx(place(tmp_path, "add_sub", config) / "model.onnx")

    async def scenario(served: Served) -> None:
        inputs = [np.full((rows, 3), rows, dtype=np.float32) for rows in (1, 2, 3, 4)]
        answers = await asyncio.gather(*(served.ask("add_sub", A=a, B=a + 1) for a in inputs))
        for a, outputs in zip(inputs, answers, strict=True):
            np.testing.assert_array_equal(outputs["SUM"], a + a + 1)
        assert served.execution_count("add_sub") == 1

    serve(tmp_path, scenario)


def test_onnx_strings_pass_and_text_that_is_not_utf8_is_the_requests_error(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    tensors = [helper.make_tensor_value_info(name, onnx.TensorProto.STRING, ["n"]) for name in ("IN", "OUT")]
    graph = helper.make_graph([helper.make_node("Identity", ["IN"], ["OUT"])], "echo", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    config = 'input { name: "IN" dims: -1 } output { name: "OUT" data_type: TYPE_STRING dims: -1 }'
    (place(tmp_path, "echo", config) / "model.onnx").write_bytes(model.SerializeToString())

    async def scenario(served: Served) -> None:
        assert served.config("echo").max_batch_size == 0
        words = np.array([b"ship", "Schön".encode(), b""], dtype=np.object_)
        assert (await served.ask("echo", IN=words))["OUT"].tolist() == words.tolist()
        with pytest.raises(ServingError, match="'IN' is not UTF-8 text"):
            await served.ask("echo", IN=np.array([b"\xff\xfe"], dtype=np.object_))

    serve(tmp_path, scenario)


def test_half_precision_reaches_onnx_runtime_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    add_onnx(place(tmp_path, "half") / "model.onnx", "FLOAT16")

    async def scenario(served: Served) -> None:
        a = np.array([[1, 2, 0.5]], dtype=np.float16)
        total = (await served.ask("half", A=a, B=a))["SUM"]
        assert total.dtype == np.float16
        np.testing.assert_array_equal(total, a + a)

    serve(tmp_path, scenario)


def test_a_request_that_fails_leaves_the_others_of_its_batch_alone(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    table = helper.make_tensor("TABLE", onnx.TensorProto.FLOAT, [4], [0.0, 10.0, 20.0, 30.0])
    graph = helper.make_graph(
        [helper.make_node("Gather", ["TABLE", "IN"], ["OUT"])],
        "look_up",
        [helper.make_tensor_value_info("IN", onnx.TensorProto.INT64, ["n", 1])],
        [helper.make_tensor_value_info("OUT", onnx.TensorProto.FLOAT, ["n", 1])],
        [table],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    config = "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 300000 preferred_batch_size: [ 3 ] }"
    (place(tmp_path, "look_up", config) / "model.onnx").write_bytes(model.SerializeToString())

    async def scenario(served: Served) -> None:
        numbers = [np.array([[n]], dtype=np.int64) for n in (1, 99, 3)]
        answers = await asyncio.gather(*(served.answer("look_up", {"IN": n}) for n in numbers))
        assert answers[0].outputs[0].to_numpy().tolist() == [[10.0]]
        assert "out of" in str(answers[1].error)
        assert answers[2].outputs[0].to_numpy().tolist() == [[30.0]]

    serve(tmp_path, scenario)


def test_a_truncated_file_is_a_load_error_and_other_models_keep_serving(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    whole = place(tmp_path, "whole") / "model.onnx"
    add_onnx(whole)
    for name, content in (("cut", whole.read_bytes()[:60]), ("empty", b""), ("text", b"not a model")):
        (place(tmp_path, name) / "model.onnx").write_bytes(content)

    async def scenario(served: Served) -> None:
        for name in ("cut", "empty", "text"):
            text = await load_error(served, name)
            assert f"{name}/1/model.onnx' (" in text
            assert "could not be loaded as an ONNX model" in text
            assert "At:" not in text
        a = np.ones((1, 3), dtype=np.float32)
        assert (await served.ask("whole", A=a, B=a))["SUM"].tolist() == [[2, 2, 2]]

    serve(tmp_path, scenario, models=("whole",))


@pytest.mark.parametrize("name", ["model.onnx", "model.pt", "model.joblib"])
def test_a_pipe_in_place_of_the_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
    pytest.importorskip({"model.onnx": "onnxruntime", "model.pt": "torch", "model.joblib": "sklearn"}[name])
    config = f'default_model_filename: "{name}"\n' + "".join(
        f'{way} [ {{ name: "{tensor}" data_type: TYPE_FP32 dims: [ 1 ] }} ]\n'
        for way, tensor in (("input", "INPUT__0"), ("output", "OUTPUT__0"))
    )
    path = place(tmp_path, "pipe", config) / name
    os.mkfifo(path)

    async def scenario(served: Served) -> None:
        told = f"'{path}' is neither a file nor a folder; put the model's file there"
        assert told in await load_error(served, "pipe")

    serve(tmp_path, scenario, models=())


def test_a_configuration_that_does_not_fit_the_graph_is_refused_with_both_sides(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    both = 'input { name: "A" data_type: TYPE_FP32 dims: 3 } input { name: "B" data_type: TYPE_FP32 dims: 3 }'
    cases = {
        "datatype": (
            'output { name: "SUM" data_type: TYPE_INT8 dims: 3 }',
            "expects datatype TYPE_INT8 for output 'SUM'",
        ),
        "dims": ('output { name: "SUM" data_type: TYPE_FP32 dims: 5 }', "(shape [-1,3]) but"),
        "name": ('output { name: "TOTAL" data_type: TYPE_FP32 dims: 3 }', "allowed outputs are: SUM, DIFF"),
    }
    for name, (output, _) in cases.items():
        add_onnx(place(tmp_path, name, f"max_batch_size: 2 {both} {output}") / "model.onnx")
    add_onnx(place(tmp_path, "fixed", "max_batch_size: 2") / "model.onnx", first_dim=1)

    async def scenario(served: Served) -> None:
        for name, (_, expected) in cases.items():
            assert expected in await load_error(served, name)
        assert "model does not support batching" in await load_error(served, "fixed")

    serve(tmp_path, scenario, models=())


def test_parameters_are_checked_and_those_without_effect_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("onnxruntime")
    parameter = 'parameters { key: "%s" value { string_value: "%s" } }'
    good = parameter % ("intra_op_thread_count", "1") + parameter % ("colour", "blue")
    add_onnx(place(tmp_path, "good", good) / "model.onnx")
    add_onnx(place(tmp_path, "bad", parameter % ("intra_op_thread_count", "many")) / "model.onnx")

    async def scenario(served: Served) -> None:
        a = np.ones((1, 3), dtype=np.float32)
        assert (await served.ask("good", A=a, B=a))["DIFF"].tolist() == [[0, 0, 0]]
        assert "parameter 'intra_op_thread_count' of model 'bad' must be a whole number" in await load_error(
            served, "bad"
        )

    serve(tmp_path, scenario, models=("good",))
    assert "parameter 'colour' of model 'good' has no effect on the onnxruntime backend" in caplog.text
    assert "intra_op_thread_count' of model 'good'" not in caplog.text


def test_the_default_batch_size_comes_from_the_backend_config(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    add_onnx(place(tmp_path, "add_sub") / "model.onnx")

    async def scenario(served: Served) -> None:
        assert served.config("add_sub").max_batch_size == 32

    serve(tmp_path, scenario, backend_config={"onnxruntime": {"default-max-batch-size": "32"}})


def test_openvino_serves_its_own_format_and_onnx(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    add_onnx(place(tmp_path, "of_onnx", 'backend: "openvino"') / "model.onnx")
    own = place(tmp_path, "own") / "model.xml"
    program = "import openvino, sys; m = openvino.Core().read_model(sys.argv[1]); openvino.save_model(m, sys.argv[2])"
    subprocess.run([sys.executable, "-c", program, tmp_path / "of_onnx/1/model.onnx", own], check=True)
    add_onnx(place(tmp_path, "made_variable", 'backend: "openvino" max_batch_size: 8') / "model.onnx", first_dim=1)

    async def scenario(served: Served) -> None:
        a = np.arange(6, dtype=np.float32).reshape(2, 3)
        for name in ("of_onnx", "own", "made_variable"):
            assert served.config(name).backend == "openvino"
            outputs = await served.ask(name, A=a, B=a + 1)
            np.testing.assert_array_equal(outputs["SUM"], a + a + 1)
            np.testing.assert_array_equal(outputs["DIFF"], np.full((2, 3), -1))
        assert served.config("own").max_batch_size == 4
        (tmp_path / "own/1/model.bin").unlink()
        own.write_text("<net")
        assert "could not be loaded as a model of OpenVINO" in await load_error(served, "own")

    serve(tmp_path, scenario)


def test_a_model_that_comes_with_the_load_request_is_served(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    add_onnx(place(tmp_path, "elsewhere") / "model.onnx")
    content = (tmp_path / "elsewhere" / "1" / "model.onnx").read_bytes()

    async def scenario(served: Served) -> None:
        config = '{"backend": "onnxruntime", "max_batch_size": 2}'
        await served.server.model_control.load("brought", config, {"file:1/model.onnx": content})
        a = np.ones((2, 3), dtype=np.float32)
        assert (await served.ask("brought", A=a, B=a))["SUM"].tolist() == [[2.0] * 3] * 2

    serve(tmp_path, scenario, models=())


def test_the_server_keeps_the_state_of_an_onnx_model_between_the_requests_of_a_sequence(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    names = ("IN", "OUT", "BEFORE", "AFTER")
    tensors = {name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 1]) for name in names}
    nodes = [helper.make_node("Add", ["IN", "BEFORE"], [name]) for name in ("OUT", "AFTER")]
    inputs, outputs = [tensors["IN"], tensors["BEFORE"]], [tensors["OUT"], tensors["AFTER"]]
    graph = helper.make_graph(nodes, "sum", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    config = """
    max_batch_size: 2
    sequence_batching { state { input_name: "BEFORE" output_name: "AFTER" data_type: TYPE_FP32 dims: 1 } }
    """
    (place(tmp_path, "sum", config) / "model.onnx").write_bytes(model.SerializeToString())

    async def scenario(served: Served) -> None:
        assert [entry.name for entry in served.config("sum").input] == ["IN"]
        for flags, value, total in ((1, 5.0, 5.0), (0, 2.0, 7.0), (2, 1.0, 8.0)):
            number = np.array([[value]], dtype=np.float32)
            response = await served.answer("sum", {"IN": number}, correlation_id=7, flags=flags)
            assert response.error is None
            assert {tensor.name: tensor.to_numpy().item() for tensor in response.outputs} == {"OUT": total}

    serve(tmp_path, scenario)


def test_a_worker_that_dies_is_replaced_and_the_model_serves_on(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    add_onnx(place(tmp_path, "add_sub", "instance_group [ { count: 1 kind: KIND_CPU } ]") / "model.onnx")

    async def scenario(served: Served) -> None:
        model: Any = served.server.inference.find("add_sub", "")
        (supervisor,) = model.backend._supervisors
        os.kill(supervisor._session.process.pid, signal.SIGKILL)
        a = np.ones((1, 3), dtype=np.float32)
        async with asyncio.timeout(30):
            while (await served.answer("add_sub", {"A": a, "B": a})).error is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    serve(tmp_path, scenario)
