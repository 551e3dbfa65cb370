"""A model in a test has the variables and the hooks that it has in a server, and the test has its process back."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trireme.backends.python.compat import report
from trireme.core.errors import ServingError
from trireme.testing import load_model

WriteModel = Callable[..., Path]

WORDS = """
class TritonPythonModel:
    def initialize(self, args):
        import os
        self.words = os.environ["TRIREME_COMPAT"].split(",")
        self.token = os.environ.get("HF_TOKEN")
    def execute(self, requests):
        raise RuntimeError
"""


def test_words_of_compat_hold_as_in_a_server(write_model: WriteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_COMPAT", "lengths")
    monkeypatch.setenv("PRIVATE_REPO_TOKEN", "t")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    folder, finders = write_model(WORDS), list(sys.meta_path)
    own = {"parameters": {"compat": {"string_value": "off"}}}
    for given, words, token in (
        ({}, ["lengths"], None),
        ({"compat": "token,float16"}, ["float16", "token"], "t"),
        ({"devices": "cpu"}, ["gaudi", "lengths", "neuron"], None),
        ({"compat": "token", "config": own}, ["off"], None),
    ):
        with load_model(folder, **{"config": {}, **given}) as model:  # type: ignore[arg-type]
            assert model._worker.model.words == words
            assert model._worker.model.token == token
        assert os.environ["TRIREME_COMPAT"] == "lengths"
        assert "HF_TOKEN" not in os.environ
    assert sys.meta_path == finders
    with pytest.raises(ServingError, match="compat: 'fp8' is no word of compat"):
        load_model(folder, compat="fp8")


def test_a_missing_token_is_rescued_as_in_a_server_and_told(
    write_model: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "_told", set())
    monkeypatch.setenv("PRIVATE_REPO_TOKEN", "")
    monkeypatch.delenv("PRIVATE_REPO_TOKEN")  # and what is set is undone
    source = """
        import os
        class TritonPythonModel:
            def initialize(self, args):
                self.token = os.environ["PRIVATE_REPO_TOKEN"]
        """
    folder = write_model(source)
    with pytest.raises(ServingError, match="PRIVATE_REPO_TOKEN"), load_model(folder, config={}, compat="off"):
        pass
    with load_model(folder, config={}) as model:
        assert model._worker.model.token == ""
        (entry,) = model.logs
    assert entry.level == "WARNING"
    assert entry.message.endswith("(compat 'off' turns such rescues off)")


def test_an_accelerator_that_is_missing_fails_the_load_unless_the_cpu_is_asked_for(write_model: WriteModel) -> None:
    source = """
        import torch_neuronx
        class TritonPythonModel:
            pass
        """
    folder = write_model(source)
    with pytest.raises(ServingError, match="--devices=cpu, or compat 'neuron'"), load_model(folder, config={}):
        pass
    for allowed in ({"devices": "cpu"}, {"compat": "neuron"}):
        with load_model(folder, config={}, **allowed) as model:  # type: ignore[arg-type]
            assert "in place of NeuronCores" in model.logs[0].message
        assert "torch_neuronx" not in sys.modules
    with pytest.raises(ServingError, match="'torch_neuronx' is not installed"), load_model(folder, config={}):
        pass


def test_cores_that_a_configuration_names_are_missing_as_in_a_server(write_model: WriteModel) -> None:
    folder = write_model("class TritonPythonModel:\n    pass")
    parameter = 'parameters {{ key: "NEURON_CORE_{}_INDEX" value {{ string_value: "{}" }} }}\n'.format
    tensor = 'put [{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }]\n'
    text = f'backend: "python"\nin{tensor}out{tensor}' + parameter("START", 0) + parameter("END", 3)
    (folder / "config.pbtxt").write_text(text)
    with pytest.raises(ServingError, match="asks for NeuronCores 0 to 3"), load_model(folder):
        pass
    with load_model(folder, devices="cpu"):
        pass


def test_standard_logging_that_nobody_takes_is_the_models_log(
    write_model: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    source = """
        import logging
        class TritonPythonModel:
            def initialize(self, args):
                logging.getLogger("a.model").warning("careful")
                logging.getLogger("a.model").info("by the way")
        """
    before = logging.lastResort, logging.root.level
    with load_model(write_model(source), config={}) as model:
        assert [(entry.level, entry.message) for entry in model.logs] == [("WARNING", "[model_0_0] careful")]
    with load_model(write_model(source, name="second"), config={}, compat="logging") as model:
        assert [entry.level for entry in model.logs] == ["WARNING", "INFO"]
    assert (logging.lastResort, logging.root.level) == before
