"""What the official clients ask besides inference: health, metadata, statistics, repository, settings."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException
from waiting import until

ONE = np.array([1], dtype=np.int32)


def test_the_server_is_live_and_ready(door) -> None:
    assert door.client.is_server_live() is True
    assert door.client.is_server_ready() is True


def test_models_are_ready_or_not(door) -> None:
    assert door.client.is_model_ready("types") is True
    assert door.client.is_model_ready("types", "1") is True
    assert door.client.is_model_ready("types", "2") is False
    assert door.client.is_model_ready("nosuch") is False
    assert door.client.is_model_ready("spare") is False


def test_the_server_describes_itself(door) -> None:
    found = door.plain(door.client.get_server_metadata())
    assert found["name"] == "triton"
    assert {"classification", "model_repository", "binary_tensor_data", "statistics"} <= set(found["extensions"])


def test_models_describe_themselves(door) -> None:
    found = door.plain(door.client.get_model_metadata("labels"))
    assert (found["name"], found["versions"], found["platform"]) == ("labels", ["1"], "python")
    (entry,) = found["inputs"]
    assert (entry["name"], entry["datatype"], [int(dim) for dim in entry["shape"]]) == ("IN", "FP32", [-1, 4])
    assert door.plain(door.client.get_model_metadata("pipeline"))["platform"] == "ensemble"


def test_the_configuration_is_complete(door) -> None:
    found = door.plain(door.client.get_model_config("labels"))
    config = found if door.name == "http" else found["config"]
    assert (config["name"], config["backend"], config["max_batch_size"]) == ("labels", "python", 4)
    assert config["instance_group"][0]["count"] == 1
    assert config["version_policy"]["latest"]["num_versions"] == 1
    assert config["output"][0]["label_filename"] == "labels.txt"


def test_grpc_answers_can_be_had_as_json(grpc_door) -> None:
    client = grpc_door.client
    assert client.get_server_metadata(as_json=True)["name"] == "triton"
    assert client.get_model_config("labels", as_json=True)["config"]["max_batch_size"] == 4
    assert client.get_model_metadata("labels", as_json=True)["inputs"][0]["shape"] == ["-1", "4"]
    assert client.get_inference_statistics("labels", as_json=True)["model_stats"][0]["name"] == "labels"
    index = client.get_model_repository_index(as_json=True)["models"]
    assert {"name": "types", "version": "1", "state": "READY"} in index
    assert client.get_log_settings(as_json=True)["settings"]["log_format"] == {"string_param": "default"}
    assert client.get_trace_settings(as_json=True)["settings"]["trace_level"] == {"value": ["OFF"]}


def counts(door, model: str) -> tuple[int, int, int, int]:
    (entry,) = door.plain(door.client.get_inference_statistics(model))["model_stats"]
    stats = entry["inference_stats"]
    numbers = entry.get("inference_count", 0), entry.get("execution_count", 0)
    ended = [stats[name].get("count", 0) for name in ("success", "fail")]
    return tuple(int(number) for number in (*numbers, *ended))


def test_statistics_count_what_succeeds_and_what_fails(door) -> None:
    before = counts(door, "failing")
    door.infer("failing", {"MODE": np.array([9], dtype=np.int32)})
    with pytest.raises(InferenceServerException):
        door.infer("failing", {"MODE": np.array([0], dtype=np.int32)})
    after = counts(door, "failing")
    assert tuple(b - a for a, b in zip(before, after, strict=True)) == (1, 2, 1, 1)


def test_statistics_of_all_models_and_of_unknown_ones(door) -> None:
    names = [entry["name"] for entry in door.plain(door.client.get_inference_statistics())["model_stats"]]
    assert {"types", "pipeline", "count"} <= set(names)
    with pytest.raises(InferenceServerException, match="requested model 'nosuch' is not available"):
        door.client.get_inference_statistics("nosuch")


def index_of(door) -> dict[str, dict[str, str]]:
    found = door.plain(door.client.get_model_repository_index())
    return {entry["name"]: entry for entry in (found if door.name == "http" else found["models"])}


def test_a_model_is_loaded_and_unloaded(door) -> None:
    assert index_of(door)["spare"].get("state", "") in ("", "UNAVAILABLE")
    door.client.load_model("spare")
    assert index_of(door)["spare"] == {"name": "spare", "version": "1", "state": "READY"}
    assert door.infer("spare", {"IN": ONE}).as_numpy("OUT").tolist() == [1]
    door.client.unload_model("spare")
    assert door.client.is_model_ready("spare") is False
    until(lambda: index_of(door)["spare"].get("reason") == "unloaded")
    with pytest.raises(InferenceServerException, match="Request for unknown model: 'spare'"):
        door.infer("spare", {"IN": ONE})


def test_a_configuration_of_the_client_takes_the_place_of_the_file(door) -> None:
    tensor = {"data_type": "TYPE_INT32", "dims": [1]}
    config = {"backend": "python", "input": [{"name": "IN", **tensor}], "output": [{"name": "OUT", **tensor}]}
    config["parameters"] = {"mark": {"string_value": "from the client"}}
    door.client.load_model("spare", config=json.dumps(config))
    found = door.plain(door.client.get_model_config("spare"))
    assert (found if door.name == "http" else found["config"])["parameters"]["mark"] == {
        "string_value": "from the client"
    }
    door.client.unload_model("spare")


def test_files_of_the_client_make_a_model(door, server) -> None:
    source = (server.repository / "spare" / "1" / "model.py").read_bytes().replace(b"VALUE = 1", b"VALUE = 77")
    tensor = {"data_type": "TYPE_INT32", "dims": [1]}
    config = {"backend": "python", "input": [{"name": "IN", **tensor}], "output": [{"name": "OUT", **tensor}]}
    door.client.load_model("sent", config=json.dumps(config), files={"file:1/model.py": source})
    assert door.infer("sent", {"IN": ONE}).as_numpy("OUT").tolist() == [77]
    door.client.unload_model("sent")


def test_a_model_that_cannot_be_loaded_says_why(door) -> None:
    with pytest.raises(InferenceServerException) as caught:
        door.client.load_model("nosuch")
    assert caught.value.message() == "failed to load 'nosuch', failed to poll from model repository"
    config = json.dumps({"backend": "python"})
    with pytest.raises(InferenceServerException, match=r"load failed for model 'broken'.*SyntaxError"):
        door.client.load_model("broken", config=config, files={"file:1/model.py": b"def :"})
    assert not door.client.is_server_ready()
    door.client.unload_model("broken")
    assert door.client.is_server_ready()


def test_log_settings_are_read_and_changed(door) -> None:
    client = door.client

    def level(response) -> int:
        found = door.plain(response)
        return (
            found["log_verbose_level"]
            if door.name == "http"
            else found["settings"]["log_verbose_level"]["uint32_param"]
        )

    assert level(client.get_log_settings()) == 0
    assert level(client.update_log_settings({"log_verbose_level": 1})) == 1
    assert level(client.update_log_settings({"log_verbose_level": 0, "log_info": True})) == 0
    with pytest.raises(InferenceServerException, match="log file location can not be updated"):
        client.update_log_settings({"log_file": "x"})


def test_trace_settings_are_read_changed_and_cleared(door) -> None:
    client = door.client

    def rate(response) -> str:
        found = door.plain(response)
        return found["trace_rate"] if door.name == "http" else found["settings"]["trace_rate"]["value"][0]

    start = rate(client.get_trace_settings())
    assert rate(client.update_trace_settings("types", {"trace_rate": "77"})) == "77"
    assert rate(client.get_trace_settings()) == start
    assert rate(client.update_trace_settings("types", {"trace_rate": None})) == start
    with pytest.raises(InferenceServerException, match="Request for unknown model : nosuch"):
        client.get_trace_settings("nosuch")


def test_shared_memory_is_refused_and_none_is_listed(door) -> None:
    client = door.client
    with pytest.raises(InferenceServerException, match="Client shared memory is disabled"):
        client.register_system_shared_memory("region", "/key", 64)
    with pytest.raises(InferenceServerException, match="Client shared memory is disabled"):
        client.register_cuda_shared_memory("region", b"x" * 64, 0, 64)
    assert not door.plain(client.get_system_shared_memory_status())
    assert not door.plain(client.get_cuda_shared_memory_status())
    entry = door.module.InferInput("IN_FP32", [1], "FP32")
    entry.set_shared_memory("region", 4)
    with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'region'"):
        client.infer("types", [entry])


def test_metrics_tell_what_was_inferred(server, grpc_door) -> None:
    grpc_door.infer("labels", {"IN": np.zeros([2, 4], dtype=np.float32)})
    page = server.metrics_page()
    assert 'nv_inference_request_success{model="labels",version="1"}' in page
    assert "nv_cpu_utilization" in page or "# HELP nv_inference_count" in page
