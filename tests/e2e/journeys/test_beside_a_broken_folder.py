"""One folder that cannot load, the others beside it: what is told, and that they serve."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_models
from huggingface_journey import Journey, generate, told_of
from local_hub import LocalHub
from running_server import RunningServer, write_model

pytestmark = pytest.mark.timeout(300)  # loading included

SPEAKING_MODEL = """import os
import numpy as np
import triton_python_backend_utils as pb_utils
from words import ANSWER


class TritonPythonModel:
    def execute(self, requests):
        names = ("PRIVATE_REPO_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
        tokens = " ".join(os.environ.get(name, "none") for name in names)
        text = np.array([f"{ANSWER} {tokens}"], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("text_output", text)]) for _ in requests]
"""
TEXT_CONFIG = """backend: "python"
input [{ name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }]
output [{ name: "text_output" data_type: TYPE_STRING dims: [ -1 ] }]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    journey = Journey(tmp_path_factory.mktemp("broken"))
    journey.add("llama7b")
    journey.add("persimmon8b", weights="/nowhere/persimmon", name="broken")
    for name, compat in (("left", ""), ("right", "token")):
        config = TEXT_CONFIG + f'parameters {{ key: "compat" value {{ string_value: "{compat}" }} }}\n'
        model = write_model(journey.folder, name, SPEAKING_MODEL, config)
        (model / "1" / "words.py").write_text(f"ANSWER = {name!r}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIVATE_REPO_TOKEN", "x")
        with journey.served("--exit-on-error=false") as running:
            yield running


def test_the_broken_folder_is_unavailable_with_its_python_error(server: RunningServer) -> None:
    assert server.index()["broken"]["state"] == "UNAVAILABLE"
    assert "/nowhere/persimmon" in server.index()["broken"]["reason"]
    assert "UNAVAILABLE: Internal: " in server.log
    assert server.status("/v2/health/ready") == 400


def test_the_others_serve(server: RunningServer) -> None:
    answer = generate(server, "llama7b", "I am going")
    assert answer["text_output"].startswith("I am going")  # what follows is drawn, with or without a blank


def test_a_token_that_is_given_is_passed_on_without_a_word(server: RunningServer) -> None:
    assert not [line for line in told_of(server, "llama7b") if "oken" in line]


def test_modules_of_the_same_name_do_not_meet_and_tokens_have_all_their_names_on_request(server: RunningServer) -> None:
    texts = {name: generate(server, name, "?")["text_output"] for name in ("left", "right")}
    assert texts == {"left": "left x none none", "right": "right x x x"}


@pytest.mark.parametrize("compat", ["", "off"])
def test_a_folder_without_its_token_is_told_which_variable_to_set_and_how(
    tmp_path: Path, compat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journey = Journey(tmp_path)
    weights = tiny_models.cached("llama")
    with LocalHub({"meta-llama/gated": weights}, frozenset(["meta-llama/gated"]), token="hf_right") as hub:
        monkeypatch.delenv("PRIVATE_REPO_TOKEN", raising=False)
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
        journey.add("llama7b", weights="meta-llama/gated")
        with journey.served("--exit-on-error=false", f"--compat={compat}") as server:
            reason = server.index()["llama7b"]["reason"]
            table = [line for line in server.log.splitlines() if line.startswith("|")]
    advice = "the variable PRIVATE_REPO_TOKEN, which is not set"
    assert advice in reason
    assert "export PRIVATE_REPO_TOKEN=hf_... in the environment that the server is started from" in reason
    assert any(advice in line for line in table)


def test_a_folder_that_cannot_load_ends_the_server_with_one_by_default(tmp_path: Path) -> None:
    journey = Journey(tmp_path)
    write_model(journey.folder, "broken", "raise OSError('no such weights')")
    with RunningServer(journey.folder) as server:
        assert server.process.wait(60) == 1
    assert "error: creating server: Internal - failed to load all models" in server.log
    assert json.dumps("no such weights").strip('"') in server.log
