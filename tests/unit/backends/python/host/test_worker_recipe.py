"""What a worker is told: of its model, its place, and the code that it runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trireme.backends.python.host.worker_recipe import WorkerRecipe
from trireme.backends.python.options import ModelParameters, PythonOptions
from trireme.backends.python.placement import Placement
from trireme.backends.python.process.worker_process import Launch
from trireme.backends.services import BackendServices, ModelSource
from trireme.config.model_config import ModelConfig
from trireme.proto import model_config_pb2

FOLDER = Path("/repository/m")


def recipe_of(services: Any, **fields: Any) -> WorkerRecipe:
    message = model_config_pb2.ModelConfig(name="m", **fields)
    source = ModelSource("m", 3, FOLDER, FOLDER / "3", message)
    config = ModelConfig.from_message(message)
    launch = Launch("m", Path("/usr/bin/python"), {"A": "b"})
    placement = Placement("m_1", "GPU", 2)
    return WorkerRecipe(source, config, placement, launch, services, PythonOptions(), ModelParameters())


@pytest.fixture
def services() -> BackendServices:
    nobody: Any = None
    return BackendServices(nobody, nobody, nobody, {}, True)


def test_model_gets_what_triton_tells_it(services: Any) -> None:
    arguments = recipe_of(services, max_batch_size=4).arguments()
    assert json.loads(arguments.pop("model_config"))["max_batch_size"] == 4
    assert arguments == {
        "model_instance_kind": "GPU",
        "model_instance_device_id": "2",
        "model_instance_name": "m_1",
        "model_repository": "/repository/m",
        "model_version": "3",
        "model_name": "m",
    }


def test_worker_is_told_the_file_and_the_verbose_level_of_the_moment(services: Any) -> None:
    levels = iter((0, 2))
    recipe = recipe_of(replace(services, verbose_level=lambda: next(levels)), default_model_filename="other.py")
    settings = recipe.settings()
    assert settings["model_file"] == "/repository/m/3/other.py"
    assert settings["source_path_extra"] == ()
    assert (settings["instance_name"], settings["is_debug"]) == ("m_1", False)
    assert [settings["verbose_level"], recipe.settings()["verbose_level"]] == [0, 2]


def test_python_based_backend_brings_the_code(services: Any) -> None:
    settings = replace(recipe_of(services), runtime_file=Path("/backends/mine/model.py")).settings()
    assert settings["model_file"] == "/backends/mine/model.py"
    assert settings["source_path_extra"] == ("/backends/mine",)
    assert settings["version_dir"] == "/repository/m/3"


def test_observers_are_told_of_the_instance_where_there_are_some(services: Any) -> None:
    seen: list[Any] = []
    watch = SimpleNamespace(watch=lambda *words: seen.append(words))
    assert recipe_of(services).begin_watch() is None
    recipe_of(replace(services, workers=watch)).begin_watch()
    assert seen == [("m", 3, "m_1")]


def test_a_path_of_another_machine_is_the_repositorys_own(services: Any, tmp_path: Path) -> None:
    (tmp_path / "llm" / "1").mkdir(parents=True)
    given = {"tokenizer_dir": model_config_pb2.ModelParameter(string_value="/elsewhere/llm/1")}
    recipe = recipe_of(services, parameters=given)
    here = replace(recipe, source=replace(recipe.source, model_dir=tmp_path / "m"))
    for told, path in ((recipe, "/elsewhere/llm/1"), (here, f"{tmp_path}/llm/1")):
        config = json.loads(told.arguments()["model_config"])
        assert config["parameters"] == {"tokenizer_dir": {"string_value": path}}
