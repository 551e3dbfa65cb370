"""Models of Triton's vLLM backend, over HTTP and gRPC: on our engine, and on a package that stands in for vLLM."""

from __future__ import annotations

import http.client
import json
import os
import queue
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from running_server import RunningServer
from tiny_models import tiny_causal_lm
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

PROMPT = "Tell me a story about ships"
LORA_REQUEST = """
from dataclasses import dataclass

@dataclass
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str
"""
TEMPLATE = "{% for one in messages %}{{ one.content }} {{ tone }}{% endfor %}{% if add_generation_prompt %}!{% endif %}"
GREEDY = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}
YES, NO = np.array([True]), np.array([False])


def write(repository: Path, name: str, engine_file: dict[str, Any], *parameters: tuple[str, str]) -> None:
    """As Triton's sample has it: a backend, an instance group, and a file."""
    (repository / name / "1").mkdir(parents=True)
    lines = [f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}' for key, value in parameters]
    text = 'backend: "vllm"\ninstance_group [\n  {\n    count: 1\n    kind: KIND_MODEL\n  }\n]\n'
    (repository / name / "config.pbtxt").write_text(text + "\n".join(lines))
    (repository / name / "1" / "model.json").write_text(json.dumps(engine_file))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("vllm")
    repository = folder / "model_repository"
    weights = tiny_causal_lm(folder / "weights", "llama")
    tokenizer = json.loads((weights / "tokenizer_config.json").read_text())
    (weights / "tokenizer_config.json").write_text(json.dumps({**tokenizer, "chat_template": TEMPLATE}))
    arguments = {"disable_log_requests": True, "gpu_memory_utilization": 0.5, "enforce_eager": True}
    more = {"max_model_len": 512, "tensor_parallel_size": 2, "kv_cache_dtype": "auto", "max_seq_len_to_capture": 512}
    write(repository, "vllm_model", {"model": str(weights), **arguments, **more})
    write(repository, "adapters", {"model": str(weights), "enable_lora": "true"})
    package = folder / "packages" / "vllm"
    (package / "lora").mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("stand_in_vllm.py"), package / "__init__.py")
    (package / "lora" / "request.py").write_text(LORA_REQUEST)
    real = {"model": "some/model", "disable_log_requests": True, "enable_lora": True}
    write(repository, "real", real, ("engine", "vllm"))
    (repository / "real" / "1" / "multi_lora.json").write_text(json.dumps({"sql": "/nowhere/sql", "poem": "/poem"}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("PYTHONPATH", f"{folder / 'packages'}:{os.environ.get('PYTHONPATH', '')}")
        with RunningServer(folder, "--exit-on-error=false") as server:
            server.wait_until_listening(120)
            yield server


def asked(prompt: str = PROMPT, options: dict[str, Any] | None = None, **flags: Any) -> dict[str, Any]:
    options = GREEDY if options is None else options
    texts = {"text_input": prompt, "sampling_parameters": json.dumps(options)}
    return {**{name: np.array([text], np.object_) for name, text in texts.items()}, **flags}


def streamed(server: RunningServer, model: str, arrays: dict[str, Any]) -> list[Any]:
    """All responses over gRPC."""
    found: queue.Queue[Any] = queue.Queue()
    inputs, results = [], []
    for name, array in arrays.items():
        inputs.append(grpcclient.InferInput(name, array.shape, np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array)
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        client.start_stream(lambda result, error: found.put(error or result))
        client.async_stream_infer(model, inputs, enable_empty_final_response=True)
        while True:
            result = found.get(timeout=60)
            if isinstance(result, Exception):
                raise result
            results.append(result)
            if result.get_response().parameters["triton_final_response"].bool_param:
                return results


def texts(result: Any, name: str = "text_output") -> list[str]:
    return [text.decode() for text in result.as_numpy(name)]


def generate(server: RunningServer, model: str, **body: Any) -> dict[str, Any]:
    status, _, answer = server.ask("POST", f"/v2/models/{model}/generate", {"text_input": PROMPT, **body})
    assert status == 200, answer
    found: dict[str, Any] = json.loads(answer)
    return found


def test_an_answer_begins_with_its_prompt_unless_that_is_left_out(served: RunningServer) -> None:
    whole = generate(served, "vllm_model", parameters=GREEDY)["text_output"]
    assert whole.startswith(PROMPT)
    assert len(whole.removeprefix(PROMPT).split()) == 8
    as_texts = {"temperature": "0", "max_tokens": "8", "ignore_eos": "true"}
    assert generate(served, "vllm_model", parameters=as_texts)["text_output"] == whole
    left_out = generate(served, "vllm_model", parameters=GREEDY, exclude_input_in_output=True)["text_output"]
    assert left_out == whole.removeprefix(PROMPT)
    (result,) = streamed(served, "vllm_model", asked())
    assert texts(result) == [whole]
    assert [entry.name for entry in result.get_response().outputs] == ["text_output"]


def test_the_pieces_of_a_stream_are_the_answer_without_its_prompt(served: RunningServer) -> None:
    whole = generate(served, "vllm_model", parameters=GREEDY)["text_output"]
    pieces = streamed(served, "vllm_model", asked(stream=YES))
    assert len(pieces) == 8
    assert "".join(texts(piece)[0] for piece in pieces) == whole.removeprefix(PROMPT)
    with closing(http.client.HTTPConnection("127.0.0.1", served.ports["http"], timeout=60)) as connection:
        body = {"text_input": PROMPT, "stream": True, "parameters": GREEDY}
        connection.request("POST", "/v2/models/vllm_model/generate_stream", json.dumps(body))
        lines = connection.getresponse().read().decode().split("\n\n")
    events = [json.loads(line.removeprefix("data: "))["text_output"] for line in lines if line]
    assert events == [texts(piece)[0] for piece in pieces]


def test_vllms_defaults_are_followed(served: RunningServer) -> None:
    (result,) = streamed(served, "vllm_model", asked(options={"ignore_eos": True}, return_num_output_tokens=YES))
    assert result.as_numpy("num_output_tokens").tolist() == [16]
    drawn = {tuple(texts(streamed(served, "vllm_model", asked(options={}))[0])) for _ in range(3)}
    assert len(drawn) > 1
    seeded = {tuple(texts(streamed(served, "vllm_model", asked(options={"seed": 4}))[0])) for _ in range(3)}
    assert len(seeded) == 1


ALL = ("finish_reason", "cumulative_logprob", "logprobs", "num_input_tokens", "num_output_tokens")


@pytest.mark.parametrize(("model", "prompt_tokens"), [("vllm_model", None), ("real", 6)])
def test_more_is_told_where_it_is_asked_for(served: RunningServer, model: str, prompt_tokens: int | None) -> None:
    options = {"max_tokens": 4, "temperature": 0, "logprobs": 1}
    flags = {f"return_{name}": YES for name in ALL}
    (result,) = streamed(served, model, asked(options=options, **flags))
    assert texts(result, "finish_reason") == ["length"]
    entries = json.loads(texts(result, "logprobs")[0])
    assert len(entries) == 4
    assert all({"logprob", "rank", "decoded_token"} == one.keys() for entry in entries for one in entry.values())
    total = sum(next(iter(entry.values()))["logprob"] for entry in entries)
    assert result.as_numpy("cumulative_logprob").tolist() == pytest.approx([total], rel=1e-4)
    assert result.as_numpy("num_output_tokens").tolist() == [4]
    assert prompt_tokens in (None, int(result.as_numpy("num_input_tokens")[0]))
    pieces = streamed(served, model, asked(options=options, stream=YES, **flags))
    assert [texts(piece, "finish_reason")[0] for piece in pieces] == ["None", "None", "None", "length"]
    assert [entry for piece in pieces for entry in json.loads(texts(piece, "logprobs")[0])] == entries
    assert [int(piece.as_numpy("num_output_tokens")[0]) for piece in pieces] == [1, 1, 1, 1]
    (plain,) = streamed(served, model, asked(options={"max_tokens": 2}, return_logprobs=YES))
    assert texts(plain, "logprobs") == ["null"]


@pytest.mark.parametrize("model", ["vllm_model", "real"])
def test_several_answers_come_together(served: RunningServer, model: str) -> None:
    options = {"max_tokens": 5, "n": 3, "temperature": 1.0}
    (result,) = streamed(served, model, asked(options=options))
    assert len(texts(result)) == 3
    assert all(text.startswith(PROMPT) for text in texts(result))
    pieces = streamed(served, model, asked(options=options, stream=YES))
    assert all(len(texts(piece)) == 3 for piece in pieces)


def test_a_schema_is_followed(served: RunningServer) -> None:
    options = {"max_tokens": 20, "guided_choice": ["yes", "no"]}
    (result,) = streamed(served, "vllm_model", asked(options=options, exclude_input_in_output=YES))
    assert texts(result)[0] in ("yes", "no")


def test_others_are_answered_while_a_grammar_is_tried(served: RunningServer) -> None:
    ended: list[str] = []

    def ask(name: str, options: dict[str, Any]) -> None:
        body = {"text_input": PROMPT, "sampling_parameters": json.dumps({"max_tokens": 1, **options})}
        status, _, answer = served.ask("POST", "/v2/models/vllm_model/generate", body)
        ended.append(f"{name}: {status}")
        if status != 200:
            assert b"'guided_json' cannot be compiled" in answer

    hostile = threading.Thread(
        target=ask, args=("hostile", {"guided_json": {"type": "integer", "multipleOf": 9_999_973}})
    )
    hostile.start()
    time.sleep(0.5)  # it is being tried by now
    ask("other", {})
    hostile.join(120)
    assert ended == ["other: 200", "hostile: 400"]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (asked(stream=YES, exclude_input_in_output=NO), "`exclude_input_in_output` = False is not allowed"),
        (asked(options={"temprature": 1}), "there is no sampling parameter 'temprature'; did you mean 'temperature'?"),
        (asked(options={"max_tokens": 0}), "'max_tokens' must be at least 1"),
        (asked(options={"lora_name": "sql"}), "LoRA feature is not enabled"),
        (asked(image=np.array(["aGk="], np.object_)), "'image' cannot be followed"),
        (asked("word " * 600), "512"),
    ],
)
def test_mistakes_are_named(served: RunningServer, arrays: dict[str, Any], words: str) -> None:
    with pytest.raises(InferenceServerException, match=words):
        streamed(served, "vllm_model", arrays)


def test_the_file_is_read(served: RunningServer) -> None:
    assert "runs on 2 ranks (cpu, cpu) with PyTorch" in served.log
    assert "max_seq_len_to_capture of model.json have no meaning here" in served.log
    assert "multi_lora.json', which enable_lora needs: the folder of each adapter by its name" in served.log
    assert served.index()["adapters"]["state"] == "UNAVAILABLE"
    config = json.loads(served.ask("GET", "/v2/models/vllm_model/config")[2])
    assert config["model_transaction_policy"]["decoupled"] is True
    assert config["max_batch_size"] == 0


def test_vllm_itself_is_asked_where_the_model_says_so(served: RunningServer) -> None:
    assert "vLLM has been given the model some/model" in served.log
    (result,) = streamed(served, "real", asked("one two three", {"max_tokens": 4}))
    assert texts(result) == ["one two three one two three one"]
    pieces = streamed(served, "real", asked("one two", {"max_tokens": 3}, stream=YES))
    assert [texts(piece)[0] for piece in pieces] == [" one", " two", " one"]
    with pytest.raises(InferenceServerException, match="max_tokens must be at least 1, got 0"):
        streamed(served, "real", asked(options={"max_tokens": 0}))


def test_vllm_itself_is_told_of_adapters(served: RunningServer) -> None:
    (result,) = streamed(served, "real", asked("one", {"max_tokens": 3, "lora_name": "poem"}))
    assert texts(result) == ["one poem 2 /poem"]
    with pytest.raises(InferenceServerException, match="LoRA prose is not supported, we currently support"):
        streamed(served, "real", asked("one", {"lora_name": "prose"}))


def leave_midway(server: RunningServer, model: str, **options: Any) -> None:
    """Asks for 450 tokens, and goes after the first."""
    body = {"text_input": PROMPT, "stream": True, "parameters": {"max_tokens": 450, **options}}
    with closing(http.client.HTTPConnection("127.0.0.1", server.ports["http"], timeout=60)) as connection:
        connection.request("POST", f"/v2/models/{model}/generate_stream", json.dumps(body))
        with closing(connection.getresponse()) as response:
            assert response.read(32).startswith(b"data: ")


def test_a_client_that_leaves_ends_the_work(served: RunningServer) -> None:
    def written() -> float:
        found, before = -1.0, -2.0
        while found != before:
            before = found
            time.sleep(1.2)  # the metric is told twice a second
            found = served.value("vllm:generation_tokens_total", model="vllm_model", version="1")
        return found

    before = written()
    leave_midway(served, "vllm_model", ignore_eos=True)
    assert 0 < written() - before < 440


def test_a_client_that_leaves_ends_the_work_of_vllm_itself(served: RunningServer) -> None:
    before = served.log.count("vLLM has ended")
    leave_midway(served, "real")
    served.until(lambda: served.log.count("vLLM has ended") > before, 10)


def test_statistics_have_what_the_engine_measures(served: RunningServer) -> None:
    generate(served, "vllm_model", parameters=GREEDY)
    _, _, body = served.ask("GET", "/v2/models/vllm_model/stats")
    found = json.loads(body)["model_stats"][0]["engine_stats"]
    assert found["first_token"]["ns"] > 0
    assert found["output_token"]["count"] >= 3
    assert found["prompt_tokens"]["count"] > 0


def test_openai_clients_get_the_answer_alone_with_its_end_and_its_tokens(served: RunningServer) -> None:
    base = {"model": "vllm_model", "prompt": PROMPT, **GREEDY}
    whole = completed(served, base)
    text = generate(served, "vllm_model", parameters=GREEDY)["text_output"].removeprefix(PROMPT)
    assert whole["choices"][0]["text"] == text
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens"] == 8
    twice = completed(served, {**base, "n": 2, "echo": True})
    assert [choice["text"] for choice in twice["choices"]] == [PROMPT + text] * 2
    assert twice["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    assert twice["usage"]["completion_tokens"] == 16
    events = served.ask("POST", "/v1/completions", {**base, "stream": True})[2].decode().split("\n\n")
    choices = [json.loads(event[6:])["choices"][0] for event in events if event.startswith("data: {")]
    assert "".join(choice["text"] for choice in choices) == text
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["length"]
    chat = {"model": "vllm_model", "messages": [{"role": "user", "content": "Hi"}], **GREEDY}
    assert not completed(served, chat, "chat/completions")["choices"][0]["message"]["content"].startswith("User")


def test_a_chat_has_the_models_own_template_and_as_many_tokens_as_fit(served: RunningServer) -> None:
    messages = [{"role": "user", "content": "Tell me a story"}]
    chat = {"model": "vllm_model", "messages": messages, "temperature": 0, "chat_template_kwargs": {"tone": "now"}}
    answer = completed(served, {**chat, "ignore_eos": True}, "chat/completions")
    (choice,), usage = answer["choices"], answer["usage"]
    assert usage["prompt_tokens"] + usage["completion_tokens"] == 512
    assert choice["finish_reason"] == "length"
    short = completed(served, {**chat, "max_tokens": 8, "ignore_eos": True}, "chat/completions")
    assert short["usage"] == {**usage, "completion_tokens": 8, "total_tokens": usage["prompt_tokens"] + 8}
    assert choice["message"]["content"].startswith(short["choices"][0]["message"]["content"])
    fields = {"messages": json.dumps(messages), "parameters": {**GREEDY, "add_generation_prompt": False}}
    status, _, text = served.ask("POST", "/v2/models/vllm_model/generate", fields)
    assert status == 200, text
    for tools in ({"tools": [{"type": "function", "function": {"name": "sail"}}]}, {"logprobs": True}):
        status, _, text = served.ask("POST", "/v1/chat/completions", {**chat, **tools})
        assert (status, json.loads(text)["error"]["param"]) == (400, next(iter(tools)))


def test_vllm_itself_gets_a_chat_as_the_tokens_of_its_template(served: RunningServer) -> None:
    messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "three"}]
    answer = completed(served, {"model": "real", "messages": messages}, "chat/completions")
    words = answer["choices"][0]["message"]["content"].split()
    assert (words[:4], len(words)) == (["3", "5", "1", "0"], 20)
    assert answer["usage"]["prompt_tokens"] == 4


def completed(server: RunningServer, body: dict[str, Any], path: str = "completions") -> Any:
    status, _, answer = server.ask("POST", f"/v1/{path}", body)
    assert status == 200, answer
    return json.loads(answer)
