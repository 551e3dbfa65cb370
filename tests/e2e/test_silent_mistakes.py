"""Mistakes that Triton passes over in silence are told: by an error where outputs are strict, in the log otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import RunningServer

CONFIG = """backend: "python"
input [ { name: "INPUT0", data_type: TYPE_FP32, dims: [ 1 ] } ]
output [ { name: "OUTPUT0", data_type: TYPE_FP32, dims: [ 1 ] } ]
"""
MODEL = """import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("{output}", pb_utils.get_input_tensor_by_name(r, "{input}").as_numpy())]
            )
            for r in requests
        ]
"""
QUESTION = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1.0]}]}


def write(folder: Path, name: str, **names: str) -> None:
    (folder / "model_repository" / name / "1").mkdir(parents=True)
    (folder / "model_repository" / name / "config.pbtxt").write_text(CONFIG)
    (folder / "model_repository" / name / "1/model.py").write_text(MODEL.format(**names))


@pytest.fixture(scope="module", params=["true", "false"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("mistakes")
    write(folder, "misnamed_output", output="OUTPUT", input="INPUT0")
    write(folder, "misnamed_input", output="OUTPUT0", input="INPUT")
    with RunningServer(folder, f"--strict-model-outputs={request.param}") as running:
        running.is_strict = request.param == "true"  # type: ignore[attr-defined]
        running.wait_until_listening()
        yield running


def ask(server: RunningServer, model: str, body: object = QUESTION) -> tuple[int, dict[str, object]]:
    status, _, answer = server.ask("POST", f"/v2/models/{model}/infer", body)
    return status, json.loads(answer)


def test_output_that_the_configuration_does_not_have_is_told(server: RunningServer) -> None:
    sentence = (
        "model 'misnamed_output' made output 'OUTPUT', which its configuration does not have, did you mean 'OUTPUT0'?"
    )
    answers = [ask(server, "misnamed_output") for _ in range(2)]
    if server.is_strict:  # type: ignore[attr-defined]
        assert answers == [(500, {"error": f"{sentence} (--strict-model-outputs=false lets it pass)"})] * 2
    else:
        assert [(status, answer["outputs"]) for status, answer in answers] == [(200, [])] * 2
        server.until(lambda: sentence in server.log)
        assert server.log.count(sentence) == 1


def test_error_over_a_missing_input_names_it(server: RunningServer) -> None:
    status, answer = ask(server, "misnamed_input")
    assert status == 500
    assert "'NoneType' object has no attribute 'as_numpy'" in str(answer["error"])
    assert "The request has no input 'INPUT', did you mean 'INPUT0'?" in str(answer["error"])


def test_clients_are_told_what_they_probably_meant(server: RunningServer) -> None:
    assert ask(server, "misnamed_inptu") == (
        404,
        {"error": "Request for unknown model: 'misnamed_inptu' is not found, did you mean 'misnamed_input'?"},
    )
    misnamed = {"inputs": [{**QUESTION["inputs"][0], "name": "INPUT"}]}
    assert ask(server, "misnamed_input", misnamed) == (
        400,
        {"error": "unexpected inference input 'INPUT' for model 'misnamed_input', did you mean 'INPUT0'?"},
    )
    assert ask(server, "misnamed_input", {"input": []}) == (
        500,
        {
            "error": "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'; "
            "'input' is there instead"
        },
    )
    status, _, answer = server.ask("POST", "/v2/models/misnamed_input/infer", b"{'inputs': []}")
    assert (status, json.loads(answer)["error"]) == (
        500,
        "failed to parse the request JSON buffer: Missing a name for object member. at 1; JSON wants double quotes",
    )
