"""Names of parameters that are nearly the server's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trireme.backends.catalog import BackendServices, ModelSource, create_backend
from trireme.backends.python.misspelt_parameters import misspelt_parameters
from trireme.backends.server_parameters import SERVER_PARAMETERS
from trireme.config import compat_words, device_parameter, load_timeout
from trireme.config.picture_parameters import INPUT as IMAGE_INPUT
from trireme.proto import model_config_pb2
from trireme.registry.on_demand.config import MEMORY_PARAMETER, PIN_PARAMETER


def told(*names: str) -> list[str]:
    return list(misspelt_parameters(dict.fromkeys(names, "1")))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("EXECUTION_ENV_PAHT", "EXECUTION_ENV_PATH"),
        ("execution-env-path", "EXECUTION_ENV_PATH"),
        ("FORCE_CPU_ONLY_INPUT_TENSOR", "FORCE_CPU_ONLY_INPUT_TENSORS"),
        ("max_concurency", "max_concurrency"),
        ("strict_output", "strict_outputs"),
        ("trireme_load_timout", "trireme_load_timeout"),
        ("comapt", "compat"),
    ],
)
def test_a_name_that_is_nearly_known_is_told(name: str, meant: str) -> None:
    sentence = f"parameter '{name}' is none of the server's and is left to the model: did you mean '{meant}'?"
    assert told(name) == [sentence]


def test_a_model_has_parameters_of_its_own() -> None:
    assert told(*SERVER_PARAMETERS) == []
    assert told("devices", "device_id", "DEVICE", "compatible", "max_tokens", "model_path", "image_mean", "") == []
    assert told("compact", "my_device", "on_device", "no_device", "strict_inputs") == []
    assert told("compat", "comapt") == [], "what was meant is there"


def test_what_loads_on_demand_read_is_known() -> None:
    owners = {compat_words.PARAMETER, device_parameter.NAME, load_timeout.NAME, IMAGE_INPUT}
    assert {MEMORY_PARAMETER, PIN_PARAMETER, *owners} <= SERVER_PARAMETERS


def test_a_load_warns_of_them(caplog: pytest.LogCaptureFixture) -> None:
    config = model_config_pb2.ModelConfig(name="mine", backend="python")
    config.parameters["max_concurency"].string_value = "1"
    nobody: Any = None
    create_backend(ModelSource("mine", 1, Path(), Path("1"), config), BackendServices(nobody, nobody, nobody, {}, True))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("model 'mine': parameter 'max_concurency' is none of the server's")


def test_of_very_many_the_first_ones_are_looked_at() -> None:
    assert len(told(*(f"max_concurency{number}" for number in range(20_000)))) <= 32
