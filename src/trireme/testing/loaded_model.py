"""Runs a Python model's folder inside a test, without a server: load, infer, assert.

    from trireme.testing import load_model

    def test_adds():
        with load_model("models/add_sub") as model:
            result = model.infer(INPUT0=np.array([[1.0]], np.float32), INPUT1=np.array([[2.0]], np.float32))
        assert result["OUTPUT0"] == 3.0

Everything runs in the caller's thread, so `breakpoint()` in the model's code stops in the test.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trireme.backends.python.channel import messages
from trireme.backends.python.worker.worker import Worker
from trireme.core.datatype import Parameter
from trireme.core.errors import ErrorKind, ServingError
from trireme.core.tensor import Tensor
from trireme.testing.config import check_backend, finalize_config, read_config
from trireme.testing.local_server import BlsFunction, LocalServer, LogEntry, ModelCall
from trireme.testing.metrics import Metrics
from trireme.testing.process_settings import ProcessSettings
from trireme.testing.tensor_check import TensorCheck

__all__ = ["LoadedModel", "LogEntry", "ModelCall", "Request", "Result", "load_model"]

_MAX_RESCHEDULES = 1000


@dataclass(frozen=True, slots=True)
class Request:
    """A request with more than inputs."""

    inputs: Mapping[str, Any]
    """Arrays, or what numpy makes arrays of, by name; with the batch dimension, as the model sees them. What is no
    array yet gets the datatype of the configuration."""
    request_id: str = ""
    requested_outputs: Sequence[str] = ()
    """Empty: every output of the configuration."""
    correlation_id: int | str = 0
    flags: int = 0
    """1 starts a sequence, 2 ends it."""
    timeout_us: int = 0
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    is_cancelled: bool = False
    """The model finds the request cancelled from the start."""


class Result(Mapping[str, NDArray[Any]]):
    """The outputs of one response by name; raises its error, if it has one, when they are looked at."""

    def __init__(
        self, outputs: dict[str, NDArray[Any]], error: ServingError | None, parameters: dict[str, Any]
    ) -> None:
        self._outputs = outputs
        self.error = error
        self.parameters = parameters

    def __getitem__(self, name: str) -> NDArray[Any]:
        self.check()
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        self.check()
        return iter(self._outputs)

    def __len__(self) -> int:
        self.check()
        return len(self._outputs)

    def __repr__(self) -> str:
        return f"Result({self.error!r})" if self.error is not None else f"Result({self._outputs!r})"

    def check(self) -> None:
        """Raises the response's error, if it has one."""
        if self.error is not None:
            raise self.error


def load_model(
    folder: str | Path,
    config: str | Path | Mapping[str, Any] | None = None,
    version: int | None = None,
    *,
    bls: Mapping[str, BlsFunction] | None = None,
    is_auto_complete_enabled: bool = True,
    timeout_s: float = 30.0,
    compat: str | None = None,
    devices: str | None = None,
) -> LoadedModel:
    """The model of a folder such as a repository holds, to be used in a `with` statement, which loads it.

    `config` is another file than the folder's `config.pbtxt`, or the values themselves, taken as they are: inputs and
    outputs are checked against a file, as `trireme serve` does, and not against values. `version` is the newest where
    not given; `bls` answers calls to other models: functions of a dictionary of input arrays that return one of output
    arrays, or several for a decoupled model; `timeout_s` is how long to wait for responses that come from threads;
    `compat` and `devices` are the server's flags of these names.
    """
    settings = ProcessSettings(compat, devices)
    return LoadedModel(Path(folder), config, version, bls or {}, is_auto_complete_enabled, timeout_s, settings)


class LoadedModel:
    """A model in this process. Between the start and the end of the `with` statement it is initialized."""

    def __init__(
        self,
        folder: Path,
        config: str | Path | Mapping[str, Any] | None,
        version: int | None,
        bls: Mapping[str, BlsFunction],
        is_auto_complete_enabled: bool,
        timeout_s: float,
        process: ProcessSettings,
    ) -> None:
        self._folder = folder
        self._version_dir = folder / str(_newest_version(folder) if version is None else version)
        self._given_config = config
        self._is_auto_complete_enabled = is_auto_complete_enabled
        self._process = process
        self._worker = Worker()
        self._server = LocalServer(self._worker, bls, timeout_s)
        self._home = ""
        self._path: list[str] = []
        self._modules: dict[str, Any] = {}
        self._last_key = 0
        self._check: TensorCheck | None = None  # None where the configuration is given as values
        self.config: dict[str, Any] = {}
        """The configuration, as the model completed it."""

    @property
    def logs(self) -> list[LogEntry]:
        """What was written through `pb_utils.Logger`."""
        return self._server.logs

    @property
    def calls(self) -> list[ModelCall]:
        """The calls to other models, in order."""
        return self._server.calls

    @property
    def controls(self) -> list[tuple[str, tuple[Any, ...]]]:
        """The uses of model control: operation and arguments."""
        return self._server.controls

    @property
    def metrics(self) -> Metrics:
        """The metrics that the model declared."""
        return self._server.metrics

    def __enter__(self) -> LoadedModel:
        self._home = str(self._folder.resolve())  # now: the model may change the working directory
        self._path = list(sys.path)
        self._modules = dict(sys.modules)
        self._worker.connect(self._server)
        try:
            self._load()
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._server.ask((messages.FINALIZE,))
        finally:
            self._restore()

    def infer(self, inputs: Mapping[str, Any] | Request | None = None, /, **tensors: Any) -> Result:
        """One request in a batch of its own; raises ServingError where it is answered with an error."""
        result = self.infer_many([_request(inputs, tensors)])[0]
        result.check()
        return result

    def infer_many(self, requests: Sequence[Mapping[str, Any] | Request]) -> list[Result]:
        """Several requests in one call of execute; each has its result, or its error."""
        results = []
        for stream in self._run([_request(request, {}) for request in requests]):
            if len(stream) != 1:
                text = f"the model gave {len(stream)} responses to a request where one was expected; use stream"
                raise ServingError(text, ErrorKind.INTERNAL)
            results.append(stream[0])
        return results

    def stream(self, inputs: Mapping[str, Any] | Request | None = None, /, **tensors: Any) -> list[Result]:
        """One request of a decoupled model: all responses up to the final one."""
        return self._run([_request(inputs, tensors)])[0]

    def is_ready(self) -> bool:
        """What the model's `is_ready` says; true where it has none."""
        if not self._server.facts.get("has_is_ready"):
            return True
        answer = self._server.ask((messages.CHECK_READY, 1))
        return bool(answer[2])

    def _load(self) -> None:
        name = self._folder.resolve().name
        self.config = read_config(self._folder, self._given_config, self._version_dir)
        self._process.apply(self.config, self._worker.threads)
        settings: dict[str, Any] = {
            "model_name": name,
            "model_version": self._version_dir.name,
            "model_dir": str(self._folder),
            "version_dir": str(self._version_dir),
            "model_file": self.config.get("default_model_filename") or "model.py",
            "instance_name": f"{name}_0_0",
            "verbose_level": 1,
        }
        self._server.instance_name = settings["instance_name"]
        self._worker.handle((messages.CONFIGURE, settings))
        if self._is_auto_complete_enabled:
            import json

            self.config = json.loads(self._server.ask((messages.AUTO_COMPLETE, json.dumps(self.config)))[1])
        if not isinstance(self._given_config, Mapping):
            self.config = finalize_config(self.config)
            check_backend(self.config, self._folder, self._version_dir)
            self._process.check_devices(self.config)
            self._check = TensorCheck(self.config)
        self._server.output_names = tuple(output["name"] for output in self.config.get("output", ()))
        self._server.facts = self._server.ask((messages.INITIALIZE, self._arguments(name)))[1]

    def _arguments(self, name: str) -> dict[str, str]:
        import json

        return {
            "model_config": json.dumps(self.config),
            "model_instance_kind": "CPU",
            "model_instance_device_id": "0",
            "model_instance_name": f"{name}_0_0",
            "model_repository": str(self._folder),
            "model_version": self._version_dir.name,
            "model_name": name,
        }

    def _run(self, requests: list[Request]) -> list[list[Result]]:
        server = self._server
        forms = [self._form(request) for request in requests]
        pending = forms
        for _ in range(_MAX_RESCHEDULES):
            server.execute(pending)
            rescheduled = server.take_rescheduled()
            if not rescheduled:
                break
            pending = [form for form in forms if form[0] in rescheduled]
        return [[self._result(answer) for answer in server.take_answers(form[0])] for form in forms]

    def _form(self, request: Request) -> tuple[Any, ...]:
        self._last_key += 1
        check = self._check
        named = [
            Tensor.from_numpy(name, np.asarray(value) if check is None else check.array_of(name, value))
            for name, value in request.inputs.items()
        ]
        if check is not None:
            check.check_inputs(named, request.request_id)
        tensors = [(tensor.name, tensor.datatype, tuple(tensor.shape), bytes(tensor.data)) for tensor in named]
        if request.is_cancelled:
            self._worker.receive((messages.CANCEL, self._last_key))
        return (
            self._last_key,
            request.request_id,
            tensors,
            tuple(request.requested_outputs) or self._server.output_names,
            request.correlation_id,
            request.flags,
            request.timeout_us,
            dict(request.parameters),
            None,
        )

    def _result(self, answer: tuple[Any, ...]) -> Result:
        tensors, error, parameters = answer
        if error is None and self._check is not None:
            error = self._check.output_problem(tensors)
        if error is not None:
            return Result({}, error, parameters or {})
        asked = [tensor for tensor in tensors if tensor[3] is not None]
        outputs = {name: Tensor(name, datatype, shape, data).to_numpy() for name, datatype, shape, data in asked}
        return Result(outputs, None, parameters or {})

    def _restore(self) -> None:
        """Leaves no trace of the model: neither its folders on the path nor its modules."""
        self._process.restore()
        self._worker.disconnect()
        self._server.close()
        sys.path[:] = self._path
        for name, module in list(sys.modules.items()):
            if self._modules.get(name) is module:
                continue
            path = getattr(module, "__file__", None)
            if name == self._version_dir.name or (path and Path(path).resolve().is_relative_to(self._home)):
                del sys.modules[name]
                if name in self._modules:
                    sys.modules[name] = self._modules[name]


def _newest_version(folder: Path) -> int:
    versions = [int(entry.name) for entry in folder.iterdir() if entry.is_dir() and entry.name.isdecimal()]
    if not versions:
        raise ServingError(f"model folder '{folder}' has no version folder", ErrorKind.NOT_FOUND)
    return max(versions)


def _request(inputs: Mapping[str, Any] | Request | None, tensors: Mapping[str, Any]) -> Request:
    if isinstance(inputs, Request):
        return inputs
    return Request({**(inputs or {}), **tensors})
