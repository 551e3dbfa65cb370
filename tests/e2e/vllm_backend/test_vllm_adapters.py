"""A model of Triton's vLLM backend with several adapters on our engine, as `multi_lora.json` names them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from running_server import RunningServer
from tiny_adapters import cut_off, write_adapter
from tiny_language_models import TinyModel, build
from tiny_tokenizers import byte_level, write_folder
from tritonclient.utils import InferenceServerException

PROMPT = "Q#Z%K!J+W"  # whose tokens the tiny model has
COUNT = 8


class Served:
    """A server, and the models that the adapters make of the one that it serves."""

    def __init__(self, server: RunningServer, models: dict[str, TinyModel]) -> None:
        self.server, self.models = server, models

    def wanted(self, name: str) -> str:
        tokenizer = byte_level()
        return tokenizer.decode(self.models[name].continuation(tokenizer.encode(PROMPT).ids, COUNT))

    def ask(self, name: str = "", **options: Any) -> tuple[int, dict[str, Any]]:
        chosen = {"lora_name": name} if name else {}
        options = {"temperature": "0", "max_tokens": COUNT, "ignore_eos": True, **chosen, **options}
        body = {"text_input": PROMPT, "exclude_input_in_output": True, "sampling_parameters": json.dumps(options)}
        status, _, answer = self.server.ask("POST", "/v2/models/vllm_model/generate", body)
        return status, json.loads(answer)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Adapters lie where the server is started, beside the model's file, and elsewhere; one is cut off, one missing."""
    folder = tmp_path_factory.mktemp("server")
    model = folder / "model_repository" / "vllm_model"
    tiny = build("llama", folder / "weights")
    write_folder(folder / "weights", byte_level())
    places = {"alpaca": folder / "loras" / "alpaca", "sql": model / "1" / "sql", "poem": folder / "poem"}
    models = {"": tiny}
    for seed, (name, place) in enumerate(places.items()):
        models[name] = write_adapter(tiny, place, seed=seed + 1)
    shutil.copytree(places["poem"], folder / "cut")
    cut_off(folder / "cut")
    named = {"alpaca": "./loras/alpaca", "sql": "sql", "poem": str(places["poem"]), "cut": "cut", "gone": "gone"}
    (model / "config.pbtxt").write_text('backend: "vllm" instance_group [{ count: 1 kind: KIND_MODEL }]')
    arguments = {"model": str(folder / "weights"), "dtype": "float32", "enable_lora": "true", "max_lora_rank": 16}
    (model / "1" / "model.json").write_text(json.dumps({**arguments, "lora_extra_vocab_size": 256}))
    (model / "1" / "multi_lora.json").write_text(json.dumps(named))
    with RunningServer(folder) as server:
        server.wait_until_listening(timeout_s=110)
        server.until_ready("vllm_model")
        yield Served(server, models)


def test_each_request_is_written_with_the_adapter_it_names(served: Served) -> None:
    names = ["", "alpaca", "sql", "poem"] * 4
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(served.ask, names))
    assert [status for status, _ in found] == [200] * len(names), found[0]
    assert [answer["text_output"] for _, answer in found] == [served.wanted(name) for name in names]
    assert len({served.wanted(name) for name in names}) == 4
    labels = {"model": "vllm_model", "version": "1", "adapter": "sql"}
    counted = partial(served.server.metric, "llm:adapter_requests_total", **labels)
    served.server.until(lambda: sum(counted().values()) >= 4)  # told a moment later


def test_an_adapter_and_a_grammar_go_together(served: Served) -> None:
    status, answer = served.ask("alpaca", guided_choice=["Q", "Z"])
    assert (status, answer.get("text_output")) in ((200, "Q"), (200, "Z")), answer


def test_streams_are_written_with_adapters_as_well(served: Served) -> None:
    found: list[Any] = []
    options = {"temperature": "0", "max_tokens": str(COUNT), "ignore_eos": "true", "lora_name": "poem"}
    values = {"text_input": PROMPT, "sampling_parameters": json.dumps(options)}
    inputs = []
    for name, value in values.items():
        inputs.append(grpcclient.InferInput(name, [1], "BYTES"))
        inputs[-1].set_data_from_numpy(np.array([value.encode()], np.object_))
    inputs.append(grpcclient.InferInput("stream", [1], "BOOL"))
    inputs[-1].set_data_from_numpy(np.array([True]))
    with grpcclient.InferenceServerClient(f"127.0.0.1:{served.server.ports['grpc']}") as client:
        client.start_stream(lambda result, error: found.append(error or result))
        client.async_stream_infer("vllm_model", inputs)
        client.stop_stream()
    errors = [one for one in found if isinstance(one, InferenceServerException)]
    assert not errors
    pieces = [one.as_numpy("text_output") for one in found]
    assert b"".join(piece[0] for piece in pieces if piece is not None).decode() == served.wanted("poem")


def test_an_adapter_that_is_not_there_or_damaged_is_one_requests_error(served: Served) -> None:
    status, answer = served.ask("bactrian")
    expected = "LoRA bactrian is not supported, we currently support ['alpaca', 'sql', 'poem', 'cut', 'gone']"
    assert (status, answer["error"]) == (400, expected)
    assert served.ask(lora_name=["sql"])[0] == 400
    for name in ("cut", "gone"):
        status, answer = served.ask(name)
        assert (status, name in answer["error"]) == (500, True), answer
    assert served.ask("sql")[1]["text_output"] == served.wanted("sql")
