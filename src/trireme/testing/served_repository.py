"""A server of its own for a test: started for a model or a repository, asked over HTTP, ended with the test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from trireme.core.datatype import BYTES, NUMPY_DTYPE, from_numpy
from trireme.tools.child_server import ChildServer, ChildServerError


class ServerFailed(Exception):
    """The server did not come up, or answered with an error; the text is what it said."""


def serve(folder: str | Path, *flags: str, timeout_s: float = 120.0) -> ServedRepository:
    """A server with the models of a repository; or with one model, where the folder is a model's, and with those that
    it is made of. Flags are those of `tritonserver`. To be used with `with`."""
    return ServedRepository(Path(folder), flags, timeout_s)


class ServedRepository:
    """The server, on a port of this machine alone."""

    def __init__(self, folder: Path, flags: Sequence[str], timeout_s: float) -> None:
        self._folder = folder.resolve()
        self._flags = flags
        self._timeout_s = timeout_s
        self._server = ChildServer("trireme-test-")

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._server.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()

    @property
    def url(self) -> str:
        """Where it listens: `http://127.0.0.1:<port>`."""
        return self._server.url

    @property
    def log(self) -> str:
        """What the server has logged so far."""
        return self._server.log

    def infer(self, model: str, **inputs: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """The outputs by name; arrays have the batch dimension where the model has one. Raises ServerFailed."""
        body = {"inputs": [_encoded(name, np.asarray(array)) for name, array in inputs.items()]}
        answer = self.ask("POST", f"/v2/models/{model}/infer", body)
        return {output["name"]: _decoded(output) for output in answer["outputs"]}

    def metadata(self, model: str) -> dict[str, Any]:
        """What the model takes and gives."""
        return self.ask("GET", f"/v2/models/{model}")

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """One request with JSON; raises ServerFailed where the answer is an error."""
        status, text = self._exchange(method, path, body)
        if status != 200:
            raise ServerFailed(f"{method} {path}: {status} {text}")
        found: dict[str, Any] = json.loads(text or "{}")
        return found

    def _exchange(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self._server.port, timeout=self._timeout_s)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def _start(self) -> None:
        is_model = (self._folder / "config.pbtxt").is_file() or (self._folder / "1").is_dir()
        flags = ["--strict-model-outputs=true", *self._flags]
        if is_model:
            flags = ["--model-control-mode=explicit", f"--load-model={self._folder.name}", *flags]
        self._server.start(self._folder.parent if is_model else self._folder, flags)
        try:
            self._server.wait(self._timeout_s)
        except ChildServerError as error:
            raise ServerFailed(f"'{self._folder}': {error}:\n{self.log}") from None


def _encoded(name: str, array: NDArray[Any]) -> dict[str, object]:
    datatype = from_numpy(array.dtype)
    if datatype is None:
        raise ValueError(f"input '{name}': there is no datatype for arrays of {array.dtype}")
    data = array.ravel().tolist()
    if datatype == BYTES:
        data = [item.decode() if isinstance(item, bytes) else str(item) for item in data]
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": data}


def _decoded(output: Mapping[str, Any]) -> NDArray[Any]:
    if output["datatype"] == BYTES:
        return np.array([item.encode() for item in output["data"]], np.object_).reshape(output["shape"])
    return np.array(output["data"], NUMPY_DTYPE[output["datatype"]]).reshape(output["shape"])
