"""Forms from curl to a real server: a JPEG classified by a plain ONNX model, files as strings, and what is refused."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer, write_model

onnx = pytest.importorskip("onnx")
Image = pytest.importorskip("PIL.Image")
pytestmark = pytest.mark.skipif(find_spec("onnxruntime") is None, reason="onnxruntime is not installed")

CONFIG = """
output { name: "scores" data_type: TYPE_FP32 dims: 3 label_filename: "labels.txt" }
parameters { key: "image_input" value { string_value: "pixels" } }
parameters { key: "image_resize" value { string_value: "9" } }
parameters { key: "image_scale" value { string_value: "1/255" } }
parameters { key: "image_max_pixels" value { string_value: "10000" } }
instance_group { count: 1 kind: KIND_CPU }
"""
LENGTHS = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            files = pb_utils.get_input_tensor_by_name(request, "file").as_numpy().ravel()
            factor = pb_utils.get_input_tensor_by_name(request, "factor").as_numpy().ravel()[0]
            lengths = np.array([[len(content) * factor] for content in files], dtype=np.int32)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("length", lengths)]))
        return responses
"""
LENGTHS_CONFIG = """backend: "python"
max_batch_size: 4
input [
  { name: "file" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "factor" data_type: TYPE_INT32 dims: [ 1 ] reshape { shape: [ 1 ] } allow_ragged_batch: true }
]
output [{ name: "length" data_type: TYPE_INT32 dims: [ 1 ] }]
"""


def write_color_model(repository: Path) -> None:
    """The mean of each color of a picture of 8 x 8."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("ReduceMean", ["pixels"], ["scores"], axes=[2, 3], keepdims=0)],
        "colors",
        [helper.make_tensor_value_info("pixels", kind, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("scores", kind, ["n", 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    folder = repository / "colors"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "config.pbtxt").write_text(CONFIG)
    (folder / "labels.txt").write_text("red\ngreen\nblue\n")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    folder = tmp_path_factory.mktemp("pictures")
    write_color_model(folder / "model_repository")
    write_model(folder, "lengths", LENGTHS, LENGTHS_CONFIG)
    with RunningServer(folder) as running:
        running.wait_until_listening()
        yield running
        assert running.interrupt() == 0, running.log


def jpeg(folder: Path, name: str, color: tuple[int, int, int], size: tuple[int, int] = (50, 30)) -> Path:
    path = folder / name
    Image.new("RGB", size, color).save(path, "JPEG", quality=95)
    return path


def curl(server: RunningServer, path: str, *arguments: str) -> tuple[int, Any]:
    url = f"http://127.0.0.1:{server.ports['http']}{path}"
    command = ["curl", "-s", "-w", "\n%{http_code}", url, *(word for text in arguments for word in ("-F", text))]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    body, _, status = answer.rpartition("\n")
    return int(status), json.loads(body)


def test_curl_classifies_a_jpeg_with_a_plain_onnx_model(server: RunningServer, tmp_path: Path) -> None:
    blue = jpeg(tmp_path, "blue.jpg", (10, 20, 250))
    status, answer = curl(server, "/v2/models/colors/infer", f"pixels=@{blue}", "classification=1", "id=first")
    assert status == 200
    assert answer["id"] == "first"
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("scores", "BYTES", [1, 1])
    assert output["data"][0].endswith(":2:blue")


def test_several_pictures_are_a_batch_and_generate_takes_them_too(server: RunningServer, tmp_path: Path) -> None:
    red, green = jpeg(tmp_path, "red.jpg", (255, 0, 0), (30, 80)), jpeg(tmp_path, "green.jpg", (0, 255, 0))
    status, answer = curl(server, "/v2/models/colors/infer", f"pixels=@{red}", f"pixels=@{green}")
    assert status == 200
    (output,) = answer["outputs"]
    assert output["shape"] == [2, 3]
    with Image.open(io.BytesIO(red.read_bytes())) as picture:
        expected = [value / 255 for value in picture.getpixel((15, 40))]
    assert output["data"][:3] == pytest.approx(expected, abs=1e-6)
    status, answer = curl(server, "/v2/models/colors/generate", f"pixels=@{green}")
    assert status == 200
    assert answer["scores"].index(max(answer["scores"])) == 1


def test_any_file_is_a_string_for_a_model_that_takes_strings(server: RunningServer, tmp_path: Path) -> None:
    sound = tmp_path / "sound.wav"
    sound.write_bytes(b"RIFF\0\xff\r\n--not a boundary")
    size = sound.stat().st_size
    status, answer = curl(server, "/v2/models/lengths/infer", f"file=@{sound}", "factor=2")
    assert (status, answer["outputs"][0]["data"]) == (200, [size * 2])
    status, answer = curl(server, "/v2/models/lengths/generate", f"file=@{sound}", "factor=3")
    assert (status, answer["length"]) == (200, size * 3)


def test_what_cannot_be_taken_is_refused_with_words(server: RunningServer, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("no picture")
    large = jpeg(tmp_path, "large.jpg", (1, 2, 3), (500, 500))
    cases = {
        ("colors", f"pixels=@{notes}"): (415, "the file is no picture that is known"),
        ("colors", f"pixels=@{large}"): (400, "500x500 pixels, which is more than the 10000"),
        ("colors", f"picture=@{large}"): (400, "its inputs are: pixels"),
        ("lengths", f"factor=@{notes}"): (415, "does not say how it is made of a file"),
        ("colors", "classification=1"): (400, "inputs"),
    }
    for (model, argument), (expected, words) in cases.items():
        for endpoint in ("infer", "generate"):
            status, answer = curl(server, f"/v2/models/{model}/{endpoint}", argument)
            assert status == expected, answer
            assert words in answer["error"]
    url = f"http://127.0.0.1:{server.ports['http']}/v2/models/colors/infer"
    command = ["curl", "-s", "-H", "Content-Type: multipart/form-data; boundary=b", "-d", "{}", url]
    answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    assert "does not begin with the boundary" in answer["error"]


def test_decoders_end_with_the_server(tmp_path: Path) -> None:
    write_color_model(tmp_path / "model_repository")
    red = jpeg(tmp_path, "red.jpg", (255, 0, 0))
    with RunningServer(tmp_path) as running:
        running.wait_until_listening()
        assert curl(running, "/v2/models/colors/infer", f"pixels=@{red}")[0] == 200
        listing = Path(f"/proc/{running.process.pid}/task").glob("*/children")
        children = [child for path in listing for child in path.read_text().split()]
        decoders = [child for child in children if "pictures" in Path(f"/proc/{child}/cmdline").read_text()]
        assert len(decoders) == 1
        assert running.interrupt() == 0
        assert not Path(f"/proc/{decoders[0]}").exists()
