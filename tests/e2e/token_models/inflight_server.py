"""A server with the example of in-flight batching, and how its clients ask it."""

from __future__ import annotations

import http.client
import json
import queue
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
from running_server import RunningServer

EXAMPLE = Path(__file__).parents[3] / "examples" / "inflight_batcher_llm"
KINDS = {"int32": "INT32", "uint64": "UINT64", "object": "BYTES", "bool": "BOOL", "float32": "FP32"}
PROMPT = "Where is the nearest station?"


def copy_example(folder: Path) -> Path:
    """The repository as it is shipped, in the folder of a server."""
    repository = folder / "model_repository"
    shutil.copytree(EXAMPLE, repository, ignore=shutil.ignore_patterns("model", "__pycache__"))
    return repository


def tensors(library: Any, arrays: dict[str, Any]) -> list[Any]:
    found = []
    for name, array in arrays.items():
        found.append(library.InferInput(name, array.shape, KINDS[array.dtype.name]))
        found[-1].set_data_from_numpy(array)
    return found


def asked(text: str = PROMPT, count: int = 12, **more: Any) -> dict[str, Any]:
    """The tensors of a request; `end_id` is a token that does not come."""
    whole = {"max_tokens": count, "end_id": 50431}
    arrays: dict[str, Any] = {name: np.array([[value]], np.int32) for name, value in whole.items()}
    return {"text_input": np.array([[text]], np.object_), **arrays, **more}


def fields(count: int = 12, **more: Any) -> dict[str, Any]:
    """The same as the body of a generate request."""
    return {"text_input": PROMPT, "max_tokens": count, "end_id": 50431, **more}


def streamed(server: RunningServer, model: str, arrays: dict[str, Any]) -> list[Any]:
    """All responses over gRPC, without the mark at the end."""
    found: queue.Queue[Any] = queue.Queue()
    results = []
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.ports['grpc']}") as client:
        client.start_stream(lambda result, error: found.put(error or result))
        client.async_stream_infer(model, tensors(grpcclient, arrays), enable_empty_final_response=True)
        while True:
            result = found.get(timeout=60)
            if isinstance(result, Exception):
                raise result
            if result.get_response().outputs:
                results.append(result)
            if result.get_response().parameters["triton_final_response"].bool_param:
                return results


def events(server: RunningServer, model: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """All events of generate_stream."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.ports["http"], timeout=60)) as connection:
        connection.request("POST", f"/v2/models/{model}/generate_stream", json.dumps(body))
        response = connection.getresponse()
        lines = response.read().decode().split("\n\n")
        assert response.status == 200, lines
    return [json.loads(line.removeprefix("data: ")) for line in lines if line]


def text_of(result: Any) -> str:
    return str(result.as_numpy("text_output")[0].decode())


def run_client(program: str, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """One of the example's clients, in a process of its own."""
    command = [sys.executable, str(EXAMPLE / program), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, cwd=folder)
