"""Language models that are not the engine's own, and one on a Gaudi that is not there, as a client sees them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from running_server import RunningServer
from tiny_language_models import TinyModel, build
from tiny_tokenizers import byte_level, write_folder

PROMPT = [5, 9, 17, 40, 3, 88, 61]
RECIPES = {"starcoder": "starcoder 2", "mamba": "mamba", "llama": "llama"}
SERVED = 'backend: "llm"\nparameters { key: "dtype" value: { string_value: "float32" } }\n'
ON_A_GAUDI = 'parameters { key: "device" value: { string_value: "hpu" } }\n'
SMALL = 'parameters { key: "max_sequences" value: { string_value: "2" } }\n'

Served = tuple[RunningServer, Callable[[str], TinyModel]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("server")
    models = {}
    for name, recipe in RECIPES.items():
        version = folder / "model_repository" / name / "1"
        models[name] = build(recipe, version)
        write_folder(version, byte_level())
        config = SERVED + (ON_A_GAUDI + SMALL if name == "llama" else "")
        (version.parent / "config.pbtxt").write_text(config)
    with RunningServer(folder, "--devices=hpu:1") as server:
        server.wait_until_listening(timeout_s=110)
        yield server, models.__getitem__


def answer(server: RunningServer, name: str) -> str:
    body = {"input_ids": PROMPT, "max_tokens": 8, "ignore_eos": True}
    status, _, text = server.ask("POST", f"/v2/models/{name}/generate", body)
    assert status == 200, text
    return str(json.loads(text)["text_output"])


def test_texts_are_those_of_transformers(served: Served) -> None:
    server, model = served
    for name in RECIPES:
        wanted = model(name).continuation(PROMPT, 8)
        assert answer(server, name) == byte_level().decode(wanted), name


def test_the_log_says_which_way_each_model_took(served: Served) -> None:
    log = served[0].log
    assert "Starcoder2ForCausalLM keeps its keys and values in the engine's blocks" in log
    assert "MambaForCausalLM runs one sequence after another, with a cache for each sequence, prompts in one" in log
    assert "LlamaForCausalLM runs on an HPU with recorded graphs, in float32" in log


def test_a_stream_brings_token_after_token(served: Served) -> None:
    for name in RECIPES:
        fields = {"input_ids": PROMPT, "stream": True, "max_tokens": 6, "ignore_eos": True}
        status, _, body = served[0].ask("POST", f"/v2/models/{name}/generate_stream", fields)
        assert status == 200, body
        assert body.count(b"data: ") > 2
