"""`trireme deploy` as a user types it: from the hub or a folder to answers, and the example folders beside it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from free_ports import free_ports
from local_hub import COMMIT, LocalHub
from running_server import RunningServer, port_flags, three_ports
from tiny_models import cached

pytestmark = pytest.mark.timeout(300)  # workers that import torch, several at once

ROOT = Path(__file__).resolve().parents[2]
TRIREME = str(Path(sys.executable).with_name("trireme"))
EXAMPLES = ROOT / "examples/transformers"
EXAMPLE_MODELS = {
    "falcon7b": "falcon",
    "persimmon8b": "persimmon",
    "llama7b": "llama",
    "opt-125m": "opt",
    "qwen2": "qwen2",
    "llama2": "llama",
}
PROMPTS = ["I am going", "Where is the nearest station, and where is the nearest shop?", "Hello"]


class RunningDeploy(RunningServer):
    """`trireme deploy`, typed in the folder that will hold the repository."""

    def __init__(self, folder: Path, *words: str, environment: dict[str, str] | None = None) -> None:
        self.ports = three_ports()
        command = [TRIREME, "deploy", *words, *(f"--{kind}-port={port}" for kind, port in self.ports.items())]
        command += ["--http-address=127.0.0.1", "--", "--grpc-address=127.0.0.1", "--metrics-address=127.0.0.1"]
        self._start(folder, command, **(environment or {}))

    def wait_until_greeting(self) -> None:
        self.until(lambda: "Try it from another terminal:" in self.log, timeout_s=120)


def deploy(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TRIREME, "deploy", *port_flags(three_ports()), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


def generate(server: RunningServer, model: str, text: str, **options: Any) -> str:
    status, _, body = server.ask("POST", f"/v2/models/{quote(model)}/generate", {"text_input": text, **options})
    assert status == 200, body
    return str(json.loads(body)["text_output"])


def test_an_id_of_the_hub_is_fetched_served_answers_the_printed_lines_and_ends_on_sigterm(tmp_path: Path) -> None:
    with LocalHub({"me/tiny-opt": cached("opt")}) as hub:
        environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
        with RunningDeploy(tmp_path, "me/tiny-opt", "--max-new-tokens=4", environment=environment) as server:
            server.wait_until_greeting()
            asked_for_weights = [path for path in hub.asked if path.endswith("model.safetensors")]
            assert len(asked_for_weights) == 2, "once for its size, once for its content"
            lines = [line for line in server.log.splitlines() if line.startswith("curl ")]
            assert len(lines) == 2
            streamed, chatted = (
                subprocess.run(line, shell=True, capture_output=True, check=True).stdout.decode() for line in lines
            )
            events = [json.loads(event.removeprefix("data: ")) for event in streamed.split("\n\n") if event]
            assert len(events) > 1
            assert {event["model_name"] for event in events} == {"tiny-opt"}
            text = generate(server, "tiny-opt", "Once upon a time", max_tokens=40, temperature=0.7, seed=1)
            assert "".join(event["text_output"] for event in events) == text
            assert json.loads(chatted)["usage"]["completion_tokens"] <= 4, "as the command says"
            messages = json.dumps([{"role": "user", "content": "Who are you?"}])
            status, _, body = server.ask("POST", "/v2/models/tiny-opt/generate", {"messages": messages})
            assert (status, json.loads(body)["text_output"]) == (
                200,
                json.loads(chatted)["choices"][0]["message"]["content"],
            )
            assert server.interrupt(signal.SIGTERM) == 0
        log = server.log
        assert re.search(r"^fetching me/tiny-opt: done after \d", log, re.MULTILINE)
        assert re.search(r"^loading tiny-opt: done after \d", log, re.MULTILINE)
        assert not re.search(r"[\x1b\r]", log), "a file is no terminal"
        assert (
            f'key: "revision" value: {{ string_value: "{COMMIT}" }}'
            in (tmp_path / "model_repository/tiny-opt/config.pbtxt").read_text()
        )
    # The hub is gone now; what is in the cache needs none.
    for offline in ({}, {"HF_HUB_OFFLINE": "1"}):
        again = deploy(tmp_path, "me/tiny-opt", "--max-new-tokens=4", "--no-serve", **environment, **offline)
        assert again.returncode == 0, again.stderr
        assert "from the hub's cache on this machine" in again.stdout
        assert "nothing had to be written" in again.stdout
    absent = deploy(tmp_path, "me/other", "--no-serve", **environment, HF_HUB_OFFLINE="1")
    assert absent.returncode == 3
    assert "the hub is not asked because HF_HUB_OFFLINE is set. Unset it, give the path of a folder" in absent.stderr
    (tmp_path / f"home/hub/models--me--tiny-opt/snapshots/{COMMIT}/model.safetensors").unlink()
    partial = deploy(tmp_path, "me/tiny-opt", "--no-serve", **environment, HF_HUB_OFFLINE="1")
    assert partial.returncode == 3
    assert "its files in the cache of this machine" in partial.stderr
    assert "are not complete" in partial.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["me/unknown"], 2, "there is no such model, nor a folder of that name here. If it is private, set HF_TOKEN"),
        (["me/gated"], 2, "its owner asks for consent."),
        (["me/opt", "--revision=dev"], 2, "it has no revision 'dev'"),
    ],
)
def test_what_the_hub_refuses_is_told_shortly(tmp_path: Path, words: list[str], code: int, told: str) -> None:
    models = {"me/opt": cached("opt"), "me/gated": cached("opt")}
    with LocalHub(models, gated=frozenset({"me/gated"}), token="secret") as hub:
        done = deploy(tmp_path, *words, "--no-serve", HF_ENDPOINT=hub.url, HF_HOME=str(tmp_path), HF_TOKEN="")
    assert done.returncode == code
    assert done.stderr.startswith("error: cannot get '")
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_an_adapter_on_the_hub_is_told_with_its_base(tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "me/base", "task_type": "CAUSAL_LM"}')
    (adapter / "adapter_model.safetensors").write_bytes(bytes(8))
    with LocalHub({"me/lora": adapter}) as hub:
        done = deploy(tmp_path, "me/lora", "--no-serve", HF_ENDPOINT=hub.url, HF_HOME=str(tmp_path))
    assert done.returncode == 2
    assert "'me/lora' on the hub cannot be served: it is an adapter (LoRA, made with peft) for 'me/base'" in done.stderr
    assert "trireme deploy ./lora-merged" in done.stderr


def test_ports_that_are_taken_are_told_before_anything_is_written_or_loaded(tmp_path: Path) -> None:
    ports = free_ports(2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = [f"--http-port={ports[0]}", f"--grpc-port={port}", f"--metrics-port={ports[1]}"]
        addresses = [f"--{service}-address=127.0.0.1" for service in ("http", "grpc", "metrics")]
        done = deploy(tmp_path, str(cached("opt")), *words, *addresses)
        assert done.returncode == 1
        assert (done.stdout, list(tmp_path.iterdir())) == ("", [])
        first, second = done.stderr.splitlines()
        assert first.startswith(f"error: 127.0.0.1:{port} (--grpc-port) is taken: another program")
        assert re.fullmatch(rf"  --grpc-port (?!{port}\b)\d+", second)
        mistyped = deploy(tmp_path, "./nofolder", *words, *addresses)
        assert mistyped.returncode == 2
        assert mistyped.stderr.startswith("error: there is no folder './nofolder'")
        prepared = deploy(tmp_path, str(cached("opt")), *words, *addresses, "--no-serve")
        assert prepared.returncode == 0, prepared.stderr
    nowhere = deploy(tmp_path, str(cached("opt")), "--http-address=192.0.2.1", "--http-port=8000")
    assert nowhere.returncode == 1
    assert "the server cannot listen on 192.0.2.1:8000 (--http-port): " in nowhere.stderr


def test_several_processes_of_mpirun_do_not_deploy(tmp_path: Path) -> None:
    done = deploy(tmp_path, str(cached("opt")), OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="1")
    assert done.returncode == 1
    assert "Use 'mpirun -n 1'" in done.stderr


def test_a_token_opens_a_gated_model_and_what_an_interruption_left_out_is_fetched_the_next_time(tmp_path: Path) -> None:
    with LocalHub({"me/gated": cached("opt")}, gated=frozenset({"me/gated"}), token="secret") as hub:
        environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "HF_TOKEN": "", "PRIVATE_REPO_TOKEN": "secret"}
        done = deploy(tmp_path, "me/gated", "--no-serve", **environment)
        assert done.returncode == 0, done.stderr
        cache = tmp_path / "hub/models--me--gated"
        (cache / "blobs/part.incomplete").touch()
        (cache / f"snapshots/{COMMIT}/tokenizer.json").unlink()
        again = deploy(tmp_path, "me/gated", "--no-serve", **environment)
        assert again.returncode == 0, again.stderr
        assert (cache / f"snapshots/{COMMIT}/tokenizer.json").exists()


def test_a_hub_that_does_not_answer_exits_3(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    done = deploy(tmp_path, "me/opt", HF_ENDPOINT=url, HF_HOME=str(tmp_path))
    assert done.returncode == 3
    assert f"not in the cache of this machine ('{tmp_path}/hub/models--me--opt')" in done.stderr
    assert f"the hub does not answer at '{url}' (ConnectError: " in done.stderr
    assert (
        "Give the path of a folder with the model, point HF_HOME at a cache that has it, or go online." in done.stderr
    )


def test_a_hub_that_is_silent_is_not_waited_for_long(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        done = deploy(tmp_path, "me/opt", HF_ENDPOINT=url, HF_HOME=str(tmp_path), HF_HUB_ETAG_TIMEOUT="1")
    assert done.returncode == 3
    assert "the hub does not answer" in done.stderr
    assert time.monotonic() - began < 15


def test_ejected_code_answers_each_request_of_a_batch_as_if_it_were_alone(tmp_path: Path) -> None:
    model = str(cached("llama"))
    with RunningDeploy(tmp_path, model, "--eject", "--name=chat", "--max-new-tokens=6") as server:
        server.wait_until_greeting()
        alone = [generate(server, "chat", prompt) for prompt in PROMPTS]
        assert len(set(alone)) == len(PROMPTS)
        with ThreadPoolExecutor(len(PROMPTS)) as pool:
            assert list(pool.map(lambda prompt: generate(server, "chat", prompt), PROMPTS)) == alone
        tensor = {"name": "text_input", "datatype": "BYTES", "shape": [3, 1], "data": PROMPTS}
        status, _, body = server.ask("POST", "/v2/models/chat/infer", {"inputs": [tensor]})
        assert status == 200, body
        (output,) = json.loads(body)["outputs"]
        assert (output["shape"], output["data"]) == ([3, 1], alone)
        short = generate(server, "chat", PROMPTS[0], max_new_tokens=2)
        assert alone[0].startswith(short)
        assert len(short) < len(alone[0])
        long = {"text_input": "word " * 2000}
        status, _, body = server.ask("POST", "/v2/models/chat/generate", long)
        assert status == 400
        assert "does not fit" in json.loads(body)["error"]
        assert server.interrupt(signal.SIGTERM) == 0
    config = (tmp_path / "model_repository/chat/config.pbtxt").read_text()
    assert 'backend: "python"' in config
    assert not re.search(r"^W\d{4} ", server.log, re.MULTILINE), "it is as the libraries want it"
    assert "Loading weights" not in server.log


def test_a_model_that_cannot_be_loaded_ends_the_command_with_the_reason(tmp_path: Path) -> None:
    broken = shutil.copytree(cached("opt"), tmp_path / "broken")
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps({**config, "ffn_dim": 96}))
    silent = {f"TRIREME_LOG_{kind}": "false" for kind in ("INFO", "WARNING", "ERROR")}
    with RunningDeploy(tmp_path, "broken", environment=silent) as server:
        assert server.process.wait(100) == 1
    assert "loading broken: failed after" in server.log
    last = server.log.splitlines()[-1]
    assert last.startswith("error: 'broken' could not be deployed: ")
    assert "'model.decoder.layers.0.fc1.weight' as [128, 64], but its config.json asks for [96, 64]" in last
    # It keeps nobody else from being deployed; letters of other alphabets do neither.
    name = "modèle-模型"
    chat = shutil.copytree(cached("opt"), tmp_path / name)
    (chat / "chat_template.jinja").write_text("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    with RunningDeploy(tmp_path, name, "--max-new-tokens=4") as server:
        server.wait_until_greeting()
        server.until(lambda: "warning: another model of the repository, 'broken', could not be loaded: " in server.log)
        lines = [line for line in server.log.splitlines() if line.startswith("curl ")]
        answers = [subprocess.run(line, shell=True, capture_output=True, check=True).stdout for line in lines]
        streamed, chatted = answers
        assert streamed.count(json.dumps(name, ensure_ascii=False).encode()) == streamed.count(b"data: ") > 1
        assert json.loads(chatted)["model"] == name
        assert json.loads(chatted)["choices"][0]["message"]["content"] == generate(server, name, "Who are you?")
        assert server.interrupt(signal.SIGTERM) == 0
    (broken / "config.json").write_text(json.dumps({**config, "architectures": None}))
    with RunningDeploy(tmp_path, "broken", "--task=text-generation", "--max-new-tokens=4") as server:
        server.wait_until_greeting()
        assert generate(server, "broken", "Hello")


def test_an_interruption_while_the_model_is_loaded_is_told_by_the_exit_code(tmp_path: Path) -> None:
    with RunningDeploy(tmp_path, str(cached("opt"))) as server:
        server.until(lambda: "loading opt" in server.log)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(30) == 130
        assert "Traceback" not in server.log


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All example folders in one server, each with a tiny model of its own kind."""
    folder = tmp_path_factory.mktemp("examples")
    for name, kind in EXAMPLE_MODELS.items():
        shutil.copytree(EXAMPLES / name, folder / "model_repository" / name)
        config = folder / "model_repository" / name / "config.pbtxt"
        text, count = re.subn(
            r'(key: "(?:huggingface_)?model" value: \{ string_value: ")[^"]+',
            rf"\g<1>{cached(kind)}",
            config.read_text(),
        )
        assert count == 1
        if name == "opt-125m":  # with the two lines that every one of them has to offer
            text = re.sub(r"^# (max_batch_size|dynamic_batching)", r"\1", text, flags=re.MULTILINE)
        config.write_text(text)
    with RunningServer(folder) as server:
        server.until(lambda: "Started Metrics Service" in server.log, timeout_s=270)
        yield server


def test_every_example_folder_is_served_here_and_its_configuration_is_right() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert folders == set(EXAMPLE_MODELS)
    done = subprocess.run([TRIREME, "config", "check", str(EXAMPLES)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["falcon7b", "persimmon8b", "llama7b"])
def test_examples_with_one_prompt_answer_the_usual_curl_lines(examples: RunningServer, name: str) -> None:
    tensor = {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["I am going"]}
    status, _, body = examples.ask("POST", f"/v2/models/{name}/infer", {"inputs": [tensor]})
    assert status == 200, body
    (output,) = json.loads(body)["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("text_output", "BYTES", [1])
    assert output["data"][0].startswith("I am going")
    assert len(output["data"][0]) > len("I am going")
    assert generate(examples, name, "How can you be").startswith("How can you be")


@pytest.mark.parametrize("name", ["qwen2", "llama2"])
def test_examples_with_several_prompts_answer_them_in_their_order(examples: RunningServer, name: str) -> None:
    tensor = {"name": "INPUT0", "datatype": "BYTES", "shape": [2], "data": ["I am", "you are"]}
    body = {"inputs": [tensor], "outputs": [{"name": "OUTPUT0"}], "parameters": {"max_new_tokens": 5}}
    status, _, answer = examples.ask("POST", f"/v2/models/{name}/infer", body)
    assert status == 200, answer
    (output,) = json.loads(answer)["outputs"]
    assert output["shape"] == [2]
    first, second = output["data"]
    assert (first[:4], second[:7]) == ("I am", "you are")


def test_an_example_with_batches_gives_each_request_its_own_answer(examples: RunningServer) -> None:
    alone = [generate(examples, "opt-125m", prompt) for prompt in PROMPTS]
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        assert list(pool.map(lambda prompt: generate(examples, "opt-125m", prompt), PROMPTS)) == alone
    for prompt, text in zip(PROMPTS, alone, strict=True):
        assert text.startswith(prompt)
    tensor = {"name": "text_input", "datatype": "BYTES", "shape": [3, 1], "data": PROMPTS}
    status, _, body = examples.ask("POST", "/v2/models/opt-125m/infer", {"inputs": [tensor]})
    assert status == 200, body
    assert json.loads(body)["outputs"][0]["data"] == alone


def test_a_wrong_option_of_a_request_is_its_own_fault(examples: RunningServer) -> None:
    status, _, body = examples.ask(
        "POST", "/v2/models/falcon7b/generate", {"text_input": "Hello", "max_new_tokens": "many"}
    )
    assert status == 400
    assert "'max_new_tokens' must be a whole number" in json.loads(body)["error"]
