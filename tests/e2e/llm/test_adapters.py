"""One language model with several adapters, as clients ask for them by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer
from tiny_adapters import ATTENTION, cut_off, write_adapter, write_adapters
from tiny_language_models import TinyModel, build
from tiny_tokenizers import byte_level, write_folder

PROMPT = [5, 9, 17, 40, 3, 88, 61]
COUNT = 8
CONFIG = """backend: "llm"
parameters { key: "dtype" value: { string_value: "float32" } }
parameters { key: "adapters" value: { string_value: "adapters" } }
parameters { key: "max_adapters" value: { string_value: "2" } }
"""


class Served:
    """A server with one model, and the models that its adapters make of it."""

    def __init__(self, server: RunningServer, models: dict[str, TinyModel], folder: Path) -> None:
        self.server, self.models, self.folder = server, models, folder

    def wanted(self, name: str) -> str:
        """What a request with the adapter has to be answered with."""
        return byte_level().decode(self.models[name].continuation(PROMPT, COUNT))

    def generate(self, **options: Any) -> tuple[int, dict[str, Any]]:
        body = {"input_ids": PROMPT, "max_tokens": COUNT, "ignore_eos": True, **options}
        status, _, text = self.server.ask("POST", "/v2/models/tiny/generate", body)
        return status, json.loads(text)

    def complete(self, model: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        body = {"model": model, "prompt": PROMPT, "max_tokens": COUNT, "ignore_eos": True, **fields}
        status, _, text = self.server.ask("POST", "/v1/completions", body)
        return status, json.loads(text)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("server")
    model = folder / "model_repository" / "tiny"
    tiny = build("llama", model / "1")
    write_folder(model / "1", byte_level())
    models = {"": tiny, **write_adapters(tiny, model / "adapters", ("french", "german", "polish"))}
    write_adapter(tiny, model / "adapters" / "cut", ATTENTION)
    cut_off(model / "adapters" / "cut")
    (model / "config.pbtxt").write_text(CONFIG)
    with RunningServer(folder) as server:
        server.wait_until_listening(timeout_s=110)
        server.until_ready("tiny")
        yield Served(server, models, model / "adapters")


def test_each_request_is_written_with_the_adapter_it_names(served: Served) -> None:
    names = ["", "french", "german", "polish"] * 6
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda name: served.generate(adapter=name), names))
    assert [status for status, _ in found] == [200] * len(names)
    assert [answer["text_output"] for _, answer in found] == [served.wanted(name) for name in names]
    assert len({served.wanted(name) for name in names}) == 4


def test_other_names_of_the_option(served: Served) -> None:
    for option in ("lora", "lora_name"):
        assert served.generate(**{option: "german"})[1]["text_output"] == served.wanted("german")
    status, answer = served.generate(adapter="german", lora="french")
    assert status == 400
    assert "name different adapters" in answer["error"]
    status, answer = served.generate(adapter=7)
    assert status == 400
    assert "'adapter' must be the name of an adapter" in answer["error"]


def test_models_of_openais_api(served: Served) -> None:
    _, _, text = served.server.ask("GET", "/v1/models")
    listed = {entry["id"]: entry for entry in json.loads(text)["data"]}
    assert sorted(listed) == ["tiny", "tiny:cut", "tiny:french", "tiny:german", "tiny:polish"]
    assert listed["tiny:french"]["parent"] == "tiny"
    assert "parent" not in listed["tiny"]
    status, _, text = served.server.ask("GET", "/v1/models/tiny:german")
    assert status == 200
    assert json.loads(text)["id"] == "tiny:german"


def test_completions_of_openais_api(served: Served) -> None:
    for name in ("french", ""):
        asked = f"tiny:{name}" if name else "tiny"
        status, answer = served.complete(asked)
        assert status == 200, answer
        assert answer["model"] == asked
        assert answer["choices"][0]["text"] == served.wanted(name)
    status, _, body = served.server.ask(
        "POST",
        "/v1/completions",
        {
            "model": "tiny:polish", "prompt": PROMPT, "max_tokens": COUNT, "ignore_eos": True, "stream": True, "n": 2,
        },
    )  # fmt: skip
    assert status == 200
    events = [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: {")]
    assert {event["model"] for event in events} == {"tiny:polish"}
    for index in range(2):
        pieces = [choice["text"] for event in events for choice in event["choices"] if choice["index"] == index]
        assert "".join(pieces) == served.wanted("polish")
    status, _, body = served.server.ask("POST", "/tokenize", {"model": "tiny:polish", "prompt": "abc"})
    assert status == 200


def test_names_that_nobody_has(served: Served) -> None:
    status, answer = served.generate(adapter="frensh")
    assert status == 404
    assert answer["error"] == "there is no adapter 'frensh'; did you mean 'french'?"
    status, answer = served.generate(adapter="../adapters/french")
    assert status == 404
    status, answer = served.complete("tiny:frensh")
    assert status == 404
    assert "did you mean 'french'" in answer["error"]["message"]
    status, answer = served.complete("tini:french")
    assert status == 404
    assert answer["error"]["code"] == "model_not_found"
    assert "Did you mean 'tiny:french'" in answer["error"]["message"]


def test_a_damaged_adapter_fails_its_own_requests_alone(served: Served) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda name: served.generate(adapter=name), ["cut", "german", "", "cut"] * 4))
    for number, (status, answer) in enumerate(found):
        if number % 4 in (0, 3):
            assert status == 500
            assert "was not written or copied to its end" in answer["error"]
        else:
            assert status == 200
            assert answer["text_output"] == served.wanted("german" if number % 4 == 1 else "")


def test_one_that_comes_later_is_served(served: Served) -> None:
    served.models["breton"] = write_adapter(served.models[""], served.folder / "breton", seed=11)
    assert served.complete("tiny:breton")[1]["choices"][0]["text"] == served.wanted("breton")


def test_metrics_count_requests_by_adapter(served: Served) -> None:
    def counted() -> float:
        return sum(served.server.metric("llm:adapter_requests_total", model="tiny", adapter="danish").values())

    write_adapter(served.models[""], served.folder / "danish", seed=12)
    for _ in range(3):
        assert served.generate(adapter="danish")[0] == 200
    served.server.until(lambda: counted() == 3)
    assert served.generate(adapter="polish")[0] == 200
    served.server.until(lambda: served.server.value("llm:adapters_in_memory", model="tiny", version="1") == 2)
    assert counted() == 3
