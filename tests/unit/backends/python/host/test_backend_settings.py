"""Settings, placements, worker variables and the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trireme.backends.python.environment.cache_folder import cache_root
from trireme.backends.python.options import ModelParameters, PythonOptions
from trireme.backends.python.placement import Placement, placements_of
from trireme.backends.python.process.variables import THREAD_VARIABLES, core_count, worker_environment
from trireme.config.model_config import ModelConfig
from trireme.core.errors import InvalidArgumentError
from trireme.proto import model_config_pb2


def test_tritons_settings_are_accepted() -> None:
    options = PythonOptions.from_backend_config(
        {
            "shm-default-byte-size": "4194304",
            "shm-growth-byte-size": "1048576",
            "shm-region-prefix-name": "prefix0_",
            "shm-message-queue-size": "1000",
            "stub-timeout-seconds": "120",
            "thread-pool-size": "8",
            "default-max-batch-size": "4",
        }
    )
    assert options.stop_timeout_s == 120
    assert PythonOptions.from_backend_config({}) == PythonOptions(30)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shm-default-byte-size", "4194303"),
        ("shm-growth-byte-size", "0"),
        ("stub-timeout-seconds", "0"),
        ("stub-timeout-seconds", "soon"),
        ("thread-pool-size", "0"),
        ("shm-message-queue-size", "-1"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_key(key: str, value: str) -> None:
    with pytest.raises(InvalidArgumentError, match=key):
        PythonOptions.from_backend_config({key: value})


@pytest.mark.parametrize(("value", "expected"), [("yes", True), ("no", False), ("NO", False)])
def test_force_cpu_only_is_yes_or_no(value: str, expected: bool) -> None:
    assert ModelParameters.from_parameters({"FORCE_CPU_ONLY_INPUT_TENSORS": value}).is_cpu_only_input is expected


def test_force_cpu_only_refuses_anything_else() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        ModelParameters.from_parameters({"FORCE_CPU_ONLY_INPUT_TENSORS": "maybe"})
    assert caught.value.message == "Incorrect value for FORCE_CPU_ONLY_INPUT_TENSORS: maybe'"


def test_concurrency_comes_from_the_parameters() -> None:
    assert ModelParameters.from_parameters({}).max_concurrency == 64
    assert ModelParameters.from_parameters({"max_concurrency": "3"}).max_concurrency == 3
    with pytest.raises(InvalidArgumentError, match="max_concurrency"):
        ModelParameters.from_parameters({"max_concurrency": "0"})


def config(*groups: dict[str, Any]) -> ModelConfig:
    message = model_config_pb2.ModelConfig(name="m")
    for group in groups:
        message.instance_group.add(**group)
    return ModelConfig.from_message(message)


def test_instances_are_named_after_their_group_and_index() -> None:
    kinds = model_config_pb2.ModelInstanceGroup
    placements = placements_of(
        config(
            {"name": "m_0", "count": 2, "kind": kinds.KIND_CPU},
            {"name": "gpu", "count": 2, "kind": kinds.KIND_GPU, "gpus": [0, 3]},
            {"name": "own", "count": 1, "kind": kinds.KIND_MODEL, "passive": True},
        )
    )
    assert placements == [
        Placement("m_0_0", "CPU", 0),
        Placement("m_0_1", "CPU", 0),
        Placement("gpu_0", "GPU", 0),
        Placement("gpu_1", "GPU", 3),
        Placement("gpu_2", "GPU", 0),
        Placement("gpu_3", "GPU", 3),
        Placement("own_0", "MODEL", 0, is_passive=True),
    ]


def test_a_configuration_without_groups_has_one_instance() -> None:
    assert placements_of(config()) == [Placement("m_0", "CPU", 0)]


def test_workers_share_the_cores_unless_the_user_said_otherwise() -> None:
    variables = worker_environment({}, instance_count=10_000)
    assert [variables.get(name) for name in THREAD_VARIABLES] == ["1", None, None]
    assert worker_environment({}, instance_count=1)["OMP_NUM_THREADS"] == str(core_count())
    own = worker_environment({"OMP_NUM_THREADS": "7"}, instance_count=1)
    assert own["OMP_NUM_THREADS"] == "7"
    assert "OMP_NUM_THREADS" not in worker_environment({"MKL_NUM_THREADS": "7"}, instance_count=1)


@pytest.mark.parametrize(
    ("given", "compat", "expected"),
    [
        ({"PRIVATE_REPO_TOKEN": "t"}, (), (None, None)),
        ({"PRIVATE_REPO_TOKEN": "t"}, ("float16", "token"), ("t", "t")),
        ({"PRIVATE_REPO_TOKEN": "t", "HF_TOKEN": "mine"}, ("token",), ("mine", "t")),
        ({}, ("token",), (None, None)),
    ],
)
def test_a_private_token_is_known_by_its_usual_names_on_request(
    given: Mapping[str, str], compat: tuple[str, ...], expected: tuple[Any, Any]
) -> None:
    variables = worker_environment(given, 1, compat)
    assert (variables.get("HF_TOKEN"), variables.get("HUGGING_FACE_HUB_TOKEN")) == expected


def test_a_worker_finds_the_words_of_its_model_alone() -> None:
    assert worker_environment({"TRIREME_COMPAT": "off"}, 1)["TRIREME_COMPAT"] == ""
    assert worker_environment({}, 1, {"token", "float16"})["TRIREME_COMPAT"] == "float16,token"


def test_a_containers_quota_limits_the_cores(tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text("50000 100000\n")
    assert core_count(quota) == 1
    quota.write_text("max 100000\n")
    assert core_count(quota) == core_count(tmp_path / "missing")


def test_the_cache_lies_where_the_user_wants_it() -> None:
    assert cache_root({"TRIREME_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_root({"XDG_CACHE_HOME": "/b"}) == Path("/b/trireme")
    assert cache_root({}).parts[-2:] == (".cache", "trireme")


def source(backend: str, platform: str = "") -> Any:
    config = model_config_pb2.ModelConfig(name="m", backend=backend, platform=platform)
    return SimpleNamespace(name="m", config=config, model_dir=Path("missing"), version_dir=Path("missing/1"))


SERVICES: Any = SimpleNamespace(backend_directory=None)


def test_an_unknown_backend_is_refused_with_the_known_ones_and_the_nearest() -> None:
    from trireme.backends import catalog

    with pytest.raises(InvalidArgumentError) as caught:
        catalog.create_backend(source("pyhton"), SERVICES)
    assert "'pyhton'" in caught.value.message
    assert "did you mean 'python'?" in caught.value.message
    with pytest.raises(InvalidArgumentError, match=r"tensorrt_plan.*known backends: .*'onnxruntime'.*'python'"):
        catalog.create_backend(source("", "tensorrt_plan"), SERVICES)


def test_the_start_up_table_names_each_backend_with_its_settings() -> None:
    from trireme.backends import catalog

    (name, path, settings), *_others = catalog.backend_names({"python": {"thread-pool-size": "8"}, "": {"x": "1"}})
    assert name == "python"
    assert Path(path).exists()
    assert settings == '{"cmdline":{"x":"1","thread-pool-size":"8"}}'
    assert catalog.backend_names()[0][2] == "{}"
