"""Backends that are not part of the package: folders with a model.py, and entry points of other packages."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from served_repository import Served, load_error, place, serve

from trireme.backends.python.process.variables import core_count

SHOUT = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils
import volume

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "IN", "data_type": "TYPE_STRING", "dims": [1]})
        config.add_output({"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]})
        return config

    def initialize(self, args):
        with open(os.path.join(pb_utils.get_model_dir(), "suffix.txt"), "rb") as file:
            self.suffix = file.read()

    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUT", np.array([volume.up(array[0]) + self.suffix], dtype=object))]
            )
            for array in arrays
        ]
"""


def write_backend(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(SHOUT)
    (folder / "volume.py").write_text("def up(text):\n    return text.upper()\n")


def add_shouts(repository: Path) -> None:
    for name, suffix in (("loud", "!"), ("louder", "!!")):
        (place(repository, name, 'backend: "shout"') / "suffix.txt").write_text(suffix)


async def expect_shouts(served: Served) -> None:
    word = np.array([b"ship"], dtype=np.object_)
    assert (await served.ask("loud", IN=word))["OUT"].tolist() == [b"SHIP!"]
    assert (await served.ask("louder", IN=word))["OUT"].tolist() == [b"SHIP!!"]


def test_a_folder_in_the_backend_directory_runs_every_model_that_names_it(tmp_path: Path) -> None:
    write_backend(tmp_path / "backends" / "shout")
    add_shouts(tmp_path / "models")
    serve(tmp_path / "models", expect_shouts, backend_directory=tmp_path / "backends")


def test_a_backend_may_lie_in_the_model_folder(tmp_path: Path) -> None:
    place(tmp_path, "loud", 'backend: "shout"').joinpath("suffix.txt").write_text("!")
    write_backend(tmp_path / "loud")

    async def scenario(served: Served) -> None:
        assert (await served.ask("loud", IN=np.array([b"a"], dtype=np.object_)))["OUT"].tolist() == [b"A!"]

    serve(tmp_path, scenario)


def announce(monkeypatch: pytest.MonkeyPatch, folder: Path, value: str) -> None:
    """Installs a distribution, as far as entry points are concerned."""
    information = folder / "shout_backend-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: shout-backend\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[trireme.backends]\nshout = {value}\n")
    monkeypatch.syspath_prepend(str(folder))


def test_a_package_with_a_model_file_is_a_backend_and_is_not_imported_by_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(monkeypatch, tmp_path / "site", "shout_backend")
    write_backend(tmp_path / "site" / "shout_backend")
    (tmp_path / "site" / "shout_backend" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    add_shouts(tmp_path / "models")
    serve(tmp_path / "models", expect_shouts)
    assert "shout_backend" not in sys.modules


def test_an_entry_point_may_name_a_factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    announce(monkeypatch, tmp_path / "site", "shout_factory:create")
    write_backend(tmp_path / "elsewhere")
    (tmp_path / "site" / "shout_factory.py").write_text(
        "from pathlib import Path\n"
        "from trireme.plugins import PythonBackend\n"
        "def create(source, services):\n"
        f"    return PythonBackend(source, services, runtime_file=Path({str(tmp_path / 'elsewhere' / 'model.py')!r}))\n"
    )
    add_shouts(tmp_path / "models")
    serve(tmp_path / "models", expect_shouts)


def test_an_entry_point_that_cannot_be_used_is_named_in_the_load_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(monkeypatch, tmp_path / "site", "shout_is_gone:create")
    add_shouts(tmp_path / "models")

    async def scenario(served: Served) -> None:
        text = await load_error(served, "loud")
        assert "shout_is_gone:create of the package 'shout-backend'" in text
        assert "No module named 'shout_is_gone'" in text

    serve(tmp_path / "models", scenario, models=())


def test_a_framework_that_is_not_installed_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorflow") is not None:
        pytest.skip("TensorFlow is installed here")
    (place(tmp_path, "saved") / "model.savedmodel").mkdir()
    place(tmp_path, "plan", 'backend: "tensorrt"').joinpath("model.plan").touch()
    place(tmp_path, "other", 'backend: "onnxruntme"')

    async def scenario(served: Served) -> None:
        assert "pip install -c constraints.txt '.[tensorflow]'" in await load_error(served, "saved")
        assert 'backend: "onnxruntime"' in await load_error(served, "plan")
        assert "did you mean 'onnxruntime'?" in await load_error(served, "other")

    serve(tmp_path, scenario, models=())


TELLER = """
import json, os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        facts = [os.environ["OMP_NUM_THREADS"], os.environ["TRIREME_BACKEND_CONFIG"]]
        out = pb_utils.Tensor("OUT", np.array(facts, dtype=object))
        return [pb_utils.InferenceResponse([out]) for _ in requests]
"""


def test_a_backend_knows_its_settings_and_its_share_of_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "backends" / "teller").mkdir(parents=True)
    (tmp_path / "backends" / "teller" / "model.py").write_text(TELLER)
    config = 'backend: "teller" input { name: "IN" data_type: TYPE_INT8 dims: 1 } '
    config += 'output { name: "OUT" data_type: TYPE_STRING dims: 2 } instance_group { count: 2 }'
    place(tmp_path / "models", "told", config)

    async def scenario(served: Served) -> None:
        threads, settings = (await served.ask("told", IN=np.zeros(1, np.int8)))["OUT"].tolist()
        assert int(threads) == max(1, core_count() // 2)
        assert json.loads(settings) == {"tone": "low", "default-max-batch-size": "9"}

    settings = {"": {"default-max-batch-size": "9", "tone": "high"}, "teller": {"tone": "low"}, "python": {"x": "1"}}
    serve(tmp_path / "models", scenario, backend_directory=tmp_path / "backends", backend_config=settings)
