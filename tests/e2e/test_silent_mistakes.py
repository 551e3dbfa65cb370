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
    write(folder, "optional", output="OUTPUT0", input="INPUT0")
    with (folder / "model_repository/optional/config.pbtxt").open("a") as config:
        config.write('input [ { name: "max_words", data_type: TYPE_INT32, dims: [ 1 ], optional: true } ]\n')
    write(folder, "text", output="text_output", input="text_input")
    (folder / "model_repository/text/config.pbtxt").write_text(
        CONFIG.replace("INPUT0", "text_input").replace("OUTPUT0", "text_output").replace("FP32", "STRING")
    )
    with RunningServer(folder, f"--strict-model-outputs={request.param}") as running:
        running.is_strict = request.param == "true"  # type: ignore[attr-defined]
        running.wait_until_listening()
        yield running


def test_model_that_is_given_as_the_repository_is_told_in_the_log(tmp_path: Path) -> None:
    write(tmp_path, "mine", output="OUTPUT0", input="INPUT0")
    (tmp_path / "model_repository/mine").rename(tmp_path / "mine")
    (tmp_path / "model_repository").rmdir()
    (tmp_path / "mine").rename(tmp_path / "model_repository")
    with RunningServer(tmp_path, "--exit-on-error=false") as running:
        running.wait_until_listening()
        assert running.index().keys() == {"1"}
        (line,) = [line for line in running.log.splitlines() if "is a model, and not the folder around it" in line]
        assert line.startswith("W")
        assert line.endswith(
            "'model_repository' is a model, and not the folder around it, so that the folders in it are taken for "
            "models: say --model-repository=."
        )


def generate(server: RunningServer, model: str, body: object) -> str:
    return str(json.loads(server.ask("POST", f"/v2/models/{model}/generate", body)[2])["error"])


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


def test_datatype_is_told_by_the_name_it_has_here(server: RunningServer) -> None:
    for written in ("float32", "TYPE_FP32", "fp32", "float"):
        misnamed = {"inputs": [{**QUESTION["inputs"][0], "datatype": written}]}
        assert ask(server, "misnamed_output", misnamed) == (
            400,
            {"error": f"invalid datatype for input INPUT0: '{written}', did you mean 'FP32'?"},
        )
    unknown = {"inputs": [{**QUESTION["inputs"][0], "datatype": "FP99"}]}
    assert ask(server, "misnamed_output", unknown) == (400, {"error": "invalid datatype for input INPUT0"})
    for member in ("type", "dtype"):  # and not 'data', which is its own
        renamed = {member if key == "datatype" else key: value for key, value in QUESTION["inputs"][0].items()}
        status, told = ask(server, "misnamed_output", {"inputs": [renamed]})
        assert status == 500
        assert told["error"].endswith(f"member 'datatype'; '{member}' is there instead (input 'INPUT0')")
    missing = {key: value for key, value in QUESTION["inputs"][0].items() if key != "datatype"}
    status, told = ask(server, "misnamed_output", {"inputs": [missing]})
    assert told["error"].endswith("non-existing object member 'datatype' (input 'INPUT0')")


def test_data_that_does_not_fit_is_told_with_the_name_of_its_input(server: RunningServer) -> None:
    first, second = ({"name": name, "datatype": "FP32", "shape": [2], "data": [1, 2]} for name in ("A", "B"))
    told = [
        ask(server, "misnamed_output", {"inputs": [first, wrong]})[1]["error"]
        for wrong in ({**second, "data": [1]}, {**second, "data": [1, "x"]}, {**second, "data": [1, 2, 3]})
    ]
    assert told == [
        "Failed to parse 'data' field: shape does not match true shape (input 'B', whose shape holds 2)",
        "Unable to parse 'data': attempt to access JSON non-number as double (input 'B' takes FP32)",
        "Unable to parse 'data': Shape does not match true shape of 'data' field (input 'B', whose shape holds 2)",
    ]


def test_members_that_are_not_read_are_told_once_in_the_log(server: RunningServer) -> None:
    entry = {"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1.0]}
    for _ in range(2):
        assert ask(server, "optional", {"inputs": [entry], "output": [{"name": "OUTPUT0"}]})[0] == 200
    sentence = "a request to model 'optional' has 'output' in place of 'outputs', which is not read"
    server.until(lambda: sentence in server.log)
    assert server.log.count(sentence) == 1


def _cut_names(count: int) -> str:
    return ", ".join([f"'{'p' * 100}'"] * count)


def test_fields_of_generate_are_told_by_the_names_of_inputs(server: RunningServer) -> None:
    error = generate(server, "misnamed_output", {"INPUT": 1.0})
    assert "missing required input(s) ['INPUT0']. Please provide all required input(s)." in error
    assert error.endswith("Did you mean 'INPUT0' where you wrote 'INPUT'?")
    assert generate(server, "misnamed_output", {}).endswith("Please provide all required input(s).")
    elsewhere = " Please provide all required input(s). The request has {}, which no input of the model is called."
    assert generate(server, "misnamed_output", {"prompt": 1}).endswith(elsewhere.format("'prompt'"))
    many = {f"{'p' * 200}{number}": number for number in range(7)}
    assert generate(server, "misnamed_output", many).endswith(elsewhere.format(f"{_cut_names(5)}, ..."))
    assert generate(server, "misnamed_output", {"INPUT0": "one"}).endswith("(input 'INPUT0' takes FP32)")


def test_misspelt_optional_input_is_told_in_the_log_once(server: RunningServer) -> None:
    sentence = "model 'optional' was sent 'max_word', which is no input of it and goes to it as a parameter"
    for _ in range(2):
        answer = server.ask("POST", "/v2/models/optional/generate", {"INPUT0": 1.0, "max_word": 3, "other": 1})
        assert json.loads(answer[2])["OUTPUT0"] == 1.0
    server.until(lambda: sentence in server.log)
    assert server.log.count("goes to it as a parameter") == 1
    assert "was its input 'max_words' meant?" in server.log


def test_openai_names_are_told(server: RunningServer) -> None:
    def error(path: str, body: object) -> tuple[int, str]:
        status, _, answer = server.ask("POST", path, body)
        return status, json.loads(answer)["error"]["message"]

    chat = {"messages": [{"role": "user", "content": "x"}]}
    wrong = "The model 'txet' does not exist."
    assert error("/v1/chat/completions", {**chat, "model": "txet"}) == (404, f"{wrong} Did you mean 'text'?")
    assert error("/v1/completions", {"prompt": "x", "model": "txet"}) == (404, f"{wrong} Did you mean 'text'?")
    assert error("/v1/completions", {"prompt": "x", "model": "gpt-4o"})[1] == "The model 'gpt-4o' does not exist."
    assert json.loads(server.ask("GET", "/v1/models/txet")[2])["error"]["message"] == f"{wrong} Did you mean 'text'?"
    told = "'messages' is required. There is 'mesages' instead."
    assert error("/v1/chat/completions", {"mesages": [], "model": "text"}) == (400, told)
