"""The lines to paste: their urls, bodies and shapes."""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from trireme.cli.curl.lines import curl_lines
from trireme.config.model_config import ModelConfig
from trireme.proto import model_config_pb2


def model(name: str = "m", **fields: Any) -> ModelConfig:
    return ModelConfig.from_message(model_config_pb2.ModelConfig(name=name, **fields))


def tensor(name: str, data_type: str, dims: list[int], **fields: Any) -> dict[str, Any]:
    return {"name": name, "data_type": data_type, "dims": dims, **fields}


def body_of(line: str) -> dict[str, Any]:
    words = shlex.split(line)
    body: dict[str, Any] = json.loads(words[words.index("-d") + 1])
    return body


def test_model_with_numbers_gets_an_infer_line_with_a_batch_of_one() -> None:
    adder = model(
        "adder",
        max_batch_size=8,
        input=[tensor("A", "TYPE_FP32", [2]), tensor("B", "TYPE_INT32", [-1])],
        output=[tensor("SUM", "TYPE_FP32", [2])],
    )
    (line,) = curl_lines("localhost:8000", [adder])
    assert line.startswith("curl localhost:8000/v2/models/adder/infer -d ")
    assert body_of(line) == {
        "inputs": [
            {"name": "A", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]},
            {"name": "B", "datatype": "INT32", "shape": [1, 1], "data": [1]},
        ]
    }


def test_address_of_a_model_with_any_name_is_one_word_of_a_shell() -> None:
    odd = model("it's (a) 100% #1?", input=[tensor("A", "TYPE_FP32", [1])], output=[tensor("B", "TYPE_FP32", [1])])
    (line,) = curl_lines("h:1", [odd])
    address = shlex.split(line)[1]
    assert unquote(address) == "h:1/v2/models/it's (a) 100% #1?/infer"
    assert line.split()[1] == address


def test_text_model_gets_an_infer_and_a_generate_line() -> None:
    text = model(input=[tensor("t", "TYPE_STRING", [1])], output=[tensor("o", "TYPE_STRING", [-1])])
    infer, generate = curl_lines("h:1", [text])
    assert body_of(infer)["inputs"] == [{"name": "t", "datatype": "BYTES", "shape": [1], "data": ["Hello"]}]
    assert generate.startswith("curl h:1/v2/models/m/generate -d ")
    assert body_of(generate) == {"t": "Hello"}


def test_inputs_of_the_transformers_backend_get_what_a_model_can_take() -> None:
    score = [tensor("score", "TYPE_FP32", [-1])]
    inputs = [
        tensor("image", "TYPE_STRING", [1]),
        tensor("candidate_labels", "TYPE_STRING", [-1], optional=True),
        tensor("stop", "TYPE_STRING", [-1], optional=True),
    ]
    (line,) = curl_lines("h:1", [model(backend="transformers", input=inputs, output=score)])
    image, labels = body_of(line)["inputs"]
    assert base64.b64decode(image["data"][0]).startswith(b"\x89PNG")
    assert (labels["name"], labels["data"]) == ("candidate_labels", ["ships, harbours"])
    table = [tensor("table", "TYPE_STRING", [1]), tensor("query", "TYPE_STRING", [1])]
    (line,) = curl_lines("h:1", [model(backend="transformers", input=table, output=score)])
    assert json.loads(body_of(line)["inputs"][0]["data"][0])["ship"] == ["Argo", "Olympias"]
    (line,) = curl_lines("h:1", [model(backend="python", input=inputs[:1], output=score)])
    assert body_of(line)["inputs"][0]["data"] == ["Hello"]


def test_an_input_that_is_too_long_for_a_line_is_read_from_a_file(tmp_path: Path) -> None:
    inputs = [tensor("audio", "TYPE_STRING", [1]), tensor("candidate_labels", "TYPE_STRING", [-1], optional=True)]
    sound = model(backend="transformers", input=inputs, output=[tensor("label", "TYPE_STRING", [-1])])
    (line,) = curl_lines("h:1", [sound])
    (tmp_path / "sound.wav").write_bytes(b"RIFF")
    body = subprocess.run(line.partition(" | ")[0], shell=True, cwd=tmp_path, capture_output=True, check=True).stdout
    assert json.loads(body) == {"audio": "UklGRg==", "candidate_labels": "ships, harbours"}
    assert "| curl h:1/v2/models/m/generate -d @-" in line


def test_decoupled_model_gets_a_stream_line_without_its_optional_inputs() -> None:
    story = model(
        input=[tensor("t", "TYPE_STRING", [1]), tensor("n", "TYPE_INT32", [1], optional=True)],
        output=[tensor("o", "TYPE_STRING", [1])],
        model_transaction_policy={"decoupled": True},
    )
    (line,) = curl_lines("h:1", [story])
    assert line.startswith("curl -N h:1/v2/models/m/generate_stream -d ")
    assert body_of(line) == {"t": "Hello"}


def test_long_input_is_made_by_a_line_of_python() -> None:
    image = model(input=[tensor("x", "TYPE_BOOL", [3, 10])], output=[tensor("y", "TYPE_FP32", [1])])
    (line,) = curl_lines("h:1", [image])
    words = shlex.split(line)
    assert words[:2] == ["python3", "-c"]
    assert words[-4:] == ["curl", "h:1/v2/models/m/infer", "-d", "@-"]
    made = subprocess.run([sys.executable, "-c", words[2]], capture_output=True, check=True, text=True).stdout
    assert json.loads(made)["inputs"] == [{"name": "x", "datatype": "BOOL", "shape": [3, 10], "data": [True] * 30}]


def test_input_that_is_made_of_a_picture_gets_a_file() -> None:
    declared = {"image_input": {"string_value": "data"}}
    config = model(max_batch_size=1, input=[tensor("data", "TYPE_FP16", [3, 224, 224])], parameters=declared)
    (line,) = curl_lines("h:1", [config])
    assert line.startswith("curl h:1/v2/models/m/infer -F data=@picture.jpg  #")


def test_decoupled_model_is_streamed_to_with_a_file_too() -> None:
    many = {"decoupled": True}
    declared = {"image_input": {"string_value": "data"}}
    pixels, sounds = [tensor("data", "TYPE_FP32", [3, 224, 224])], [tensor("audio", "TYPE_STRING", [1])]
    picture = model(input=pixels, parameters=declared, model_transaction_policy=many)
    sound = model(
        backend="transformers",
        input=sounds,
        output=[tensor("label", "TYPE_STRING", [-1])],
        model_transaction_policy=many,
    )
    lines = curl_lines("h:1", [picture]) + curl_lines("h:1", [sound])
    assert lines[0].startswith("curl -N h:1/v2/models/m/generate_stream -F data=@picture.jpg  #")
    assert "| curl -N h:1/v2/models/m/generate_stream -d @-" in lines[1]


def test_type_that_json_cannot_carry_is_said_so() -> None:
    half = model(input=[tensor("x", "TYPE_FP16", [1])], output=[tensor("y", "TYPE_FP16", [1])])
    (line,) = curl_lines("h:1", [half])
    assert line.startswith("# m: input x is FP16")


def test_sequence_model_gets_a_sequence_of_one_request() -> None:
    stateful = model(
        input=[tensor("x", "TYPE_INT32", [1])], output=[tensor("y", "TYPE_INT32", [1])], sequence_batching={}
    )
    (line,) = curl_lines("h:1", [stateful])
    assert body_of(line)["parameters"] == {"sequence_id": 1, "sequence_start": True, "sequence_end": True}
