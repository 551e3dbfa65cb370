"""Backends that packages and folders bring, installed as a user does it, and served to the official clients."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from running_server import RunningServer

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "1.2"

[project.entry-points."trireme.backends"]
"""
SHOUT = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils
from shout_backend.volume import up


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]})
        config.set_max_batch_size(4)
        return config

    def initialize(self, args):
        with open(os.path.join(pb_utils.get_model_dir(), "suffix.txt"), "rb") as file:
            self.suffix = file.read()

    def execute(self, requests):
        words = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        shouted = [np.array([[up(row[0]) + self.suffix] for row in rows], dtype=object) for rows in words]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]) for array in shouted]
"""
VOLUME = "def up(text):\n    return text.upper()\n"
ECHO = """
from trireme.core.batch import BatchTiming
from trireme.core.errors import InvalidArgumentError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor


class Echo:
    def __init__(self, source, services):
        self.source, self.instance = source, None

    async def complete_config(self):
        config = self.source.config
        config.input.add(name="IN", data_type="TYPE_STRING", dims=[1])
        config.output.add(name="OUT", data_type="TYPE_STRING", dims=[1])
        config.max_batch_size = 4
        return config

    async def start(self, config, runner):
        if not (self.source.version_dir / "suffix.txt").exists():
            raise InvalidArgumentError("there are no walls")
        self.runner, self.instance = runner, Instance(runner)
        runner.attach(self.instance)

    async def stop(self):
        if self.instance is not None:
            self.runner.detach(self.instance)

    async def is_ready(self):
        return True

    async def resize(self, config):
        pass


class Instance:
    name, max_concurrency = "echo_0", 1

    def __init__(self, runner):
        self.runner = runner

    def execute(self, batch):
        tensors = [request.inputs["IN"] for request in batch.requests]
        outputs = [[Tensor("OUT", tensor.datatype, tensor.shape, tensor.data)] for tensor in tensors]
        self.runner.finish(self, batch, [InferenceResponse(each) for each in outputs], BatchTiming(0, 0, 0))

    def cancel(self, request):
        pass


def nothing(source, services):
    return None


def thrower(source, services):
    raise OSError("no licence")
"""
POINTS = """
shout = "shout_backend"
echo = "shout_backend.echo:Echo"
nothing = "shout_backend.echo:nothing"
thrower = "shout_backend.echo:thrower"
broken = "shout_backend.broken:create"
quitter = "shout_backend.quitter:create"
twin = "shout_backend"
python = "shout_backend.echo:Echo"
"""
REASONS = {
    "mute": "No such file or directory",
    "silent": "Invalid argument: there are no walls",
    "nothing": "its factory returned NoneType, which lacks the methods complete_config, start, stop, is_ready, resize",
    "thrower": "the backend 'thrower' (shout_backend.echo:thrower of the package 'shout-backend' 1.2) cannot be used: "
    "OSError: no licence",
    "broken": "cannot be used: ImportError: libbroken.so.3 is missing",
    "quitter": "cannot be used: SystemExit: no licence",
    "twin": "2 packages bring a backend 'twin': shout_backend of the package 'shout-backend' 1.2, twin_backend of the "
    "package 'twin-backend' 1.2; uninstall all but one",
    "library": "its runtime 'libtriton_folder.so' is not the name of a Python file",
    "absent": "nor is there 'backends/folder/absent.py'",
}
CONFIGS = {
    "loud": 'backend: "shout"',
    "mute": 'backend: "shout"',
    "silent": 'backend: "echo"',
    "library": 'backend: "folder" runtime: "libtriton_folder.so"',
    "absent": 'backend: "folder" runtime: "absent.py"',
    "beside": 'backend: "folder"',
}


def write_package(folder: Path, name: str, points: str, **files: str) -> Path:
    module = name.replace("-", "_")
    (folder / name / module).mkdir(parents=True)
    (folder / name / "pyproject.toml").write_text(PROJECT.format(name=name) + points)
    for file, text in {"__init__": "", **files}.items():
        (folder / name / module / f"{file}.py").write_text(text)
    return folder / name


def install(folder: Path) -> Path:
    shout = write_package(
        folder,
        "shout-backend",
        POINTS,
        model=SHOUT,
        volume=VOLUME,
        echo=ECHO,
        broken='raise ImportError("libbroken.so.3 is missing")\n',
        quitter='import sys\nsys.exit("no licence")\n',
    )
    twin = write_package(folder, "twin-backend", 'twin = "twin_backend"\n', model=SHOUT)
    site = folder / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*command, "--target", str(site), str(shout), str(twin)], check=True)
    return site


def write_models(repository: Path) -> None:
    for name in ("echo", *CONFIGS, *REASONS):
        version = repository / name / "1"
        version.mkdir(parents=True, exist_ok=True)
        (version.parent / "config.pbtxt").write_text(CONFIGS.get(name, f'backend: "{name}"'))
    for name in ("loud", "echo", "beside"):
        (repository / name / "1" / "suffix.txt").write_text("!")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("packages")
    write_models(folder / "model_repository")
    (folder / "backends" / "folder").mkdir(parents=True)
    (folder / "backends" / "folder" / "model.py").write_text(SHOUT.replace("shout_backend.volume", "loudness"))
    (folder / "backends" / "folder" / "loudness.py").write_text(VOLUME)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(install(folder)))
        running = RunningServer(folder, "--exit-on-error=false", "--backend-directory=backends")
    with running:
        running.wait_until_listening()
        yield running


@pytest.mark.parametrize(
    ("model", "answers"),
    [("loud", [b"SHIP!", b"SEA!"]), ("echo", [b"ship", b"sea"]), ("beside", [b"SHIP!", b"SEA!"])],
)
@pytest.mark.parametrize("door", ["http", "grpc"])
def test_a_backend_from_a_package_or_a_folder_serves(
    server: RunningServer, door: str, model: str, answers: list[bytes]
) -> None:
    module = tritonclient.http if door == "http" else tritonclient.grpc
    client = module.InferenceServerClient(f"127.0.0.1:{server.ports[door]}")
    words = module.InferInput("IN", [2, 1], "BYTES")
    words.set_data_from_numpy(np.array([[b"ship"], [b"sea"]], dtype=np.object_))
    assert client.infer(model, [words]).as_numpy("OUT").reshape(-1).tolist() == answers
    client.close()


@pytest.mark.parametrize("model", REASONS)
def test_a_backend_that_does_not_work_is_named_and_others_serve(server: RunningServer, model: str) -> None:
    entry = server.index()[model]
    assert entry["state"] == "UNAVAILABLE"
    assert REASONS[model] in entry["reason"]


def test_the_backends_of_packages_are_listed_unless_their_name_is_taken(server: RunningServer) -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in server.log.splitlines() if line.startswith("|")]
    assert ["echo", "shout_backend.echo:Echo of the package 'shout-backend' 1.2"] in rows
    (python,) = [path for name, path in rows if name == "python"]
    assert "shout_backend" not in python
