"""Bad words and stop words as texts, all the way through the Falcon ensemble: preprocessing, token ids, engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from running_server import RunningServer

PROMPT = "What is the height of Eiffel Tower?"
PROTOCOLS = pytest.mark.parametrize(("library", "port"), [(httpclient, "http"), (grpcclient, "grpc")])


def ask(served: RunningServer, library: Any, port: str, *prompts: str, **words: list[list[str]]) -> list[str]:
    """What is written behind each prompt. `end_id` is a token that does not come."""
    count = len(prompts)
    arrays: dict[str, Any] = {
        "text_input": np.array([[prompt] for prompt in prompts], np.object_),
        "max_tokens": np.full((count, 1), 20, np.uint32),
        "top_k": np.full((count, 1), 10, np.uint32),
        "end_id": np.full((count, 1), 50431, np.uint32),
        **{name: np.array(rows, np.object_) for name, rows in words.items()},
    }
    inputs = []
    for name, array in arrays.items():
        inputs.append(library.InferInput(name, array.shape, {"object": "BYTES", "uint32": "UINT32"}[array.dtype.name]))
        inputs[-1].set_data_from_numpy(array)
    with library.InferenceServerClient(f"127.0.0.1:{served.ports[port]}") as client:
        texts = client.infer("ensemble", inputs).as_numpy("text_output").reshape(-1)
    return [text.decode().removeprefix(prompt) for text, prompt in zip(texts, prompts, strict=True)]


@PROTOCOLS
def test_a_bad_word_is_never_written(served: RunningServer, library: Any, port: str) -> None:
    (free,) = ask(served, library, port, PROMPT)
    words = free.split()
    for listed in ([words[2], words[5]], [f"{words[2]},{words[5]}"], [f" {words[2]}", f" {words[5]}"]):
        (text,) = ask(served, library, port, PROMPT, bad_words=[listed])
        assert text.split()[:2] == words[:2]
        assert not {words[2], words[5]} & set(text.split())
        assert len(text.split()) == len(words)


@PROTOCOLS
def test_a_stop_word_is_the_last_one(served: RunningServer, library: Any, port: str) -> None:
    (free,) = ask(served, library, port, PROMPT)
    words = free.split()
    for listed in ([words[3]], ["never", words[3]], [f" {words[3]}"], [f"{words[2]} {words[3]}"]):
        (text,) = ask(served, library, port, PROMPT, stop_words=[listed])
        assert text == free[: free.index(words[3]) + len(words[3])]


def test_every_row_has_words_of_its_own(served: RunningServer) -> None:
    free = ask(served, httpclient, "http", PROMPT, PROMPT, PROMPT)
    word = free[0].split()[3]
    texts = ask(
        served, httpclient, "http", PROMPT, PROMPT, PROMPT,
        bad_words=[[""], [word], [""]], stop_words=[[word], [""], [""]],
    )  # fmt: skip
    assert texts[0].split()[-1] == word
    assert word not in texts[1].split()
    assert texts[2] == free[2]


def test_words_that_the_model_would_not_write_change_nothing(served: RunningServer) -> None:
    (free,) = ask(served, httpclient, "http", PROMPT)
    assert ask(served, httpclient, "http", PROMPT, bad_words=[["now", "process"]], stop_words=[[""]]) == [free]
