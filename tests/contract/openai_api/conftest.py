"""One real server with models of several kinds for the tests of this folder, and OpenAI's own client."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest
import tiny_models
import tiny_task_models

HERE = Path(__file__).parent
EXAMPLES = Path(__file__).parents[3] / "examples/model_repository"
START_TIMEOUT_S = 100


class Server:
    """The process, its port, and its log."""

    def __init__(self, folder: Path) -> None:
        self.repository = folder / "repository"
        shutil.copytree(HERE / "repository", self.repository, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(EXAMPLES / "scribe", self.repository / "scribe")
        _write_transformers_models(self.repository)
        ports = _free_ports(3)
        self.address = f"127.0.0.1:{ports[0]}"
        self._log = folder / "log.txt"
        flags = [f"--model-repository={self.repository}", "--http-max-input-size=4000000"]
        for door, port in zip(("http", "grpc", "metrics"), ports, strict=True):
            flags += [f"--{door}-port={port}", f"--{door}-address=127.0.0.1"]
        with self._log.open("wb") as log:
            command = [str(Path(sys.executable).parent / "tritonserver"), *flags]
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def wait_until_ready(self) -> None:
        end = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if self.ask("GET", "/v2/health/ready")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        pytest.fail(f"the server is not ready:\n{self._log.read_text()}")

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of one plain HTTP request; objects are sent as JSON."""
        connection = http.client.HTTPConnection(self.address, timeout=60)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            connection.request(method, path, data)
            response = connection.getresponse()
            return response.status, {key.lower(): value for key, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def events(self, path: str, body: object) -> list[bytes]:
        """The data of every event of a stream."""
        status, headers, text = self.ask("POST", path, body)
        assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8"), text
        assert text.endswith(b"\n\n")
        return [event.removeprefix(b"data: ") for event in text.split(b"\n\n")[:-1]]

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        finally:
            self.process.kill()


def _write_transformers_models(repository: Path) -> None:
    _write_model(repository / "tiny", tiny_models.cached("llama"), stream="true")
    chat = _write_model(repository / "tiny_chat", tiny_models.cached("qwen2"), chat="true")
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    (chat / "chat_template.jinja").write_text(template)
    sentences = tiny_task_models.task_model("bert-sentences")
    _write_model(repository / "sentences", sentences)
    _write_model(repository / "features", sentences, task="feature-extraction")


def _write_model(folder: Path, source: Path, **settings: str) -> Path:
    shutil.copytree(source, folder / "1")
    lines = [f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in settings.items()]
    (folder / "config.pbtxt").write_text("\n".join(['backend: "transformers"', *lines]))
    return folder / "1"


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for entry in sockets:
            entry.bind(("127.0.0.1", 0))
        return [entry.getsockname()[1] for entry in sockets]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("openai"))
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://{server.address}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture
def say(client: openai.OpenAI) -> Callable[..., Any]:
    """One question to a model, with options."""

    def ask(question: str, model: str = "talker", **options: Any) -> Any:
        return client.chat.completions.create(model=model, messages=[{"role": "user", "content": question}], **options)

    return ask


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Waits for what is true soon."""

    def wait(is_true: Callable[[], bool]) -> None:
        end = time.monotonic() + 10
        while not is_true():
            assert time.monotonic() < end
            time.sleep(0.05)

    return wait
