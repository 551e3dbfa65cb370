"""One real server with models of several kinds for the tests of this folder, and OpenAI's own client."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import tiny_generating_models
import tiny_models
import tiny_task_models
from running_server import RunningServer

HERE = Path(__file__).parent
EXAMPLES = Path(__file__).parents[3] / "examples/model_repository"
START_TIMEOUT_S = 250


class Server(RunningServer):
    """A server of the repository beside this file, of an example and of tiny models."""

    def __init__(self, folder: Path) -> None:
        repository = folder / "model_repository"
        shutil.copytree(HERE / "repository", repository, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(EXAMPLES / "scribe", repository / "scribe")
        _write_transformers_models(repository)
        super().__init__(folder, "--http-max-input-size=4000000")
        self.address = f"127.0.0.1:{self.ports['http']}"

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


def _write_transformers_models(repository: Path) -> None:
    _write_model(repository / "tiny", tiny_models.cached("llama"), stream="true")
    chat = _write_model(repository / "tiny_chat", tiny_models.cached("qwen2"), chat="true")
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    (chat / "chat_template.jinja").write_text(template)
    sentences = tiny_task_models.task_model("bert-sentences")
    _write_model(repository / "sentences", sentences)
    _write_model(repository / "features", sentences, task="feature-extraction")
    _write_model(repository / "eyes", tiny_generating_models.generating_model("llava"), chat="true", stream="true")
    _write_model(repository / "captions", tiny_generating_models.generating_model("blip"))


def _write_model(folder: Path, source: Path, **settings: str) -> Path:
    shutil.copytree(source, folder / "1")
    lines = [f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in settings.items()]
    (folder / "config.pbtxt").write_text("\n".join(['backend: "transformers"', *lines]))
    return folder / "1"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("openai")) as server:
        server.wait_until_ready(START_TIMEOUT_S)
        yield server
        server.interrupt(signal.SIGTERM)


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
