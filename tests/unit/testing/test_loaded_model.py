"""`trireme.testing`: a model's folder run inside a test."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import triton_python_backend_utils as pb_utils
from trireme.core.errors import ErrorKind, ServingError
from trireme.testing import Request, load_model

WriteModel = Callable[..., Path]

DOUBLE = """
class TritonPythonModel:
    def initialize(self, args):
        self.args = args
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            if (x < 0).any():
                error = pb_utils.TritonError("negative", pb_utils.TritonError.INVALID_ARG)
                responses.append(pb_utils.InferenceResponse([], error))
            else:
                tensor = pb_utils.Tensor("Y", x * 2)
                responses.append(pb_utils.InferenceResponse([tensor], parameters={"count": len(requests)}))
        return responses
"""


def test_infer_returns_the_outputs_by_name(write_model: WriteModel) -> None:
    with load_model(write_model(DOUBLE), config={}) as model:
        result = model.infer(X=np.array([1.0, 2.0], np.float32))
    assert dict(result).keys() == {"Y"}
    assert result["Y"].tolist() == [2, 4]
    assert result["Y"].dtype == np.float32
    assert result.parameters == {"count": 1}


def test_error_response_is_raised_with_its_kind(write_model: WriteModel) -> None:
    with (
        load_model(write_model(DOUBLE), config={}) as model,
        pytest.raises(ServingError, match=r"^negative$") as caught,
    ):
        model.infer(X=[-1.0])
    assert caught.value.kind == ErrorKind.INVALID_ARGUMENT


def test_infer_many_is_one_call_of_execute_and_errors_stay_apart(write_model: WriteModel) -> None:
    with load_model(write_model(DOUBLE), config={}) as model:
        good, bad = model.infer_many([{"X": [1]}, {"X": [-1]}])
    assert good["Y"].tolist() == [2]
    assert good.parameters == {"count": 2}
    assert bad.error is not None
    with pytest.raises(ServingError, match="negative"):
        bad["Y"]


def test_exception_of_the_model_is_the_cause_of_the_error(write_model: WriteModel) -> None:
    with load_model(write_model(DOUBLE), config={}) as model, pytest.raises(ServingError) as caught:
        model.infer(Z=[1])
    assert str(caught.value).startswith(
        "Failed to process the request(s) for model 'model_0_0', message: AttributeError:"
    )
    assert isinstance(caught.value.__cause__, AttributeError)


def test_initialize_gets_the_arguments_of_a_server(write_model: WriteModel) -> None:
    folder = write_model(DOUBLE)
    with load_model(folder, config={"parameters": {"a": {"string_value": "b"}}}) as model:
        arguments = model._worker.model.args
    assert arguments["model_name"] == "model"
    assert arguments["model_version"] == "1"
    assert arguments["model_repository"] == str(folder)
    assert arguments["model_instance_kind"] == "CPU"
    assert '"string_value": "b"' in arguments["model_config"]


def test_failing_initialize_is_raised(write_model: WriteModel) -> None:
    source = "class TritonPythonModel:\n    def initialize(self, args): raise KeyError('k')"
    with pytest.raises(ServingError, match=r"^KeyError: 'k'") as caught, load_model(write_model(source), config={}):
        pass
    assert isinstance(caught.value.__cause__, KeyError)


def test_newest_version_is_taken_unless_another_is_named(write_model: WriteModel) -> None:
    folder = write_model("class TritonPythonModel: pass", version=2)
    (folder / "10").mkdir()
    (folder / "10" / "model.py").write_text("class TritonPythonModel: newest = True")
    with load_model(folder, config={}) as model:
        assert hasattr(model._worker.model, "newest")
    with load_model(folder, config={}, version=2) as model:
        assert not hasattr(model._worker.model, "newest")


def test_folder_without_a_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServingError, match="has no version folder"):
        load_model(tmp_path)


def test_path_and_modules_are_restored(write_model: WriteModel) -> None:
    folder = write_model("import sibling_of_the_harness\nclass TritonPythonModel: pass")
    (folder / "1" / "sibling_of_the_harness.py").write_text("")
    path, modules = list(sys.path), set(sys.modules)
    with load_model(folder, config={}):
        assert "sibling_of_the_harness" in sys.modules
        assert str(folder / "1") in sys.path
    assert sys.path == path
    assert "sibling_of_the_harness" not in sys.modules
    assert not {name for name in set(sys.modules) - modules if name.startswith("1")}


def test_modules_are_restored_where_the_model_changes_its_working_directory(
    write_model: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import os\nimport roaming_sibling\nos.chdir('/')\nclass TritonPythonModel: pass"
    folder = write_model(source)
    (folder / "1" / "roaming_sibling.py").write_text("VALUE = 1\n")
    monkeypatch.chdir(folder.parent)
    path = list(sys.path)
    with load_model(folder.name, config={}):
        assert "roaming_sibling" in sys.modules
    assert sys.path == path
    assert "roaming_sibling" not in sys.modules


def test_modules_of_a_folder_with_a_longer_name_are_left_alone(
    write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = tmp_path / "add_sub"
    beside.mkdir()
    (beside / "code_that_models_share.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(beside))
    folder = write_model("import code_that_models_share\nclass TritonPythonModel: pass", name="add")
    with load_model(folder, config={}):
        shared = sys.modules["code_that_models_share"]
    assert sys.modules.pop("code_that_models_share", None) is shared


def test_decoupled_model_is_streamed_also_from_a_thread(write_model: WriteModel) -> None:
    source = """
        import threading
        class TritonPythonModel:
            def execute(self, requests):
                for request in requests:
                    threading.Thread(target=self.count, args=(request.get_response_sender(),)).start()
            def count(self, sender):
                for i in range(3):
                    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([i]))]))
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """
    config = {"model_transaction_policy": {"decoupled": True}}
    with load_model(write_model(source), config=config) as model:
        assert [result["Y"].tolist() for result in model.stream()] == [[0], [1], [2]]
        with pytest.raises(ServingError, match="3 responses"):
            model.infer()


def test_silence_of_a_decoupled_model_is_reported_after_a_while(write_model: WriteModel) -> None:
    source = """
        class TritonPythonModel:
            def execute(self, requests):
                self.kept = [request.get_response_sender() for request in requests]
            def finalize(self):
                for sender in self.kept:
                    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """
    config = {"model_transaction_policy": {"decoupled": True}}
    loaded = load_model(write_model(source), config=config, timeout_s=0.01)
    with loaded as model, pytest.raises(TimeoutError, match="final response"):
        model.stream()


BLS = """
class TritonPythonModel:
    def execute(self, requests):
        tensors = requests[0].inputs()
        request = pb_utils.InferenceRequest(model_name="other", inputs=tensors, requested_output_names=["B"])
        decoupled = requests[0].request_id() == "stream"
        result = request.exec(decoupled=decoupled)
        responses = list(result) if decoupled else [result]
        if responses[0].has_error():
            return [pb_utils.InferenceResponse([], responses[0].error())]
        values = [t.as_numpy().sum() for r in responses for t in r.output_tensors()]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array(values))])]
"""


def test_calls_to_other_models_are_answered_by_functions(write_model: WriteModel) -> None:
    functions: dict[str, Any] = {"other": lambda inputs: {"B": inputs["A"] + 1, "C": np.zeros(1)}}
    with load_model(write_model(BLS), config={}, bls=functions) as model:
        assert model.infer(A=[1, 2])["Y"].tolist() == [5]
    assert [(call.model_name, call.requested_outputs) for call in model.calls] == [("other", ("B",))]
    assert model.calls[0].inputs["A"].tolist() == [1, 2]


def test_streams_of_other_models_are_answered_by_functions(write_model: WriteModel) -> None:
    functions: dict[str, Any] = {"other": lambda inputs: ({"B": inputs["A"] * i} for i in range(3))}
    with load_model(write_model(BLS), config={}, bls=functions) as model:
        result = model.infer(Request({"A": [1]}, request_id="stream"))
        assert result["Y"].tolist() == [0, 1, 2]
        with pytest.raises(ServingError, match="is using the decoupled"):
            model.infer(A=[1])


def test_unknown_and_failing_other_models_answer_with_errors(write_model: WriteModel) -> None:
    def fail(inputs: Any) -> Any:
        raise ServingError("not now", ErrorKind.UNAVAILABLE)

    folder = write_model(BLS)
    with (
        load_model(folder, config={}) as model,
        pytest.raises(ServingError, match="Model 'other' is not ready"),
    ):
        model.infer(A=[1])
    with load_model(folder, config={}, bls={"other": fail}) as model, pytest.raises(ServingError) as caught:
        model.infer(A=[1])
    assert caught.value.kind == ErrorKind.UNAVAILABLE


def test_coroutine_models_run_and_await_calls(write_model: WriteModel) -> None:
    source = """
        import asyncio
        class TritonPythonModel:
            async def execute(self, requests):
                def request():
                    return pb_utils.InferenceRequest(model_name="one", inputs=[], requested_output_names=[])
                both = await asyncio.gather(request().async_exec(), request().async_exec())
                total = sum(r.output_tensors()[0].as_numpy()[0] for r in both)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([total]))]) for _ in requests]
        """
    with load_model(write_model(source), config={}, bls={"one": lambda inputs: {"B": [1]}}) as model:
        assert model.infer()["Y"].tolist() == [2]
        assert model.infer()["Y"].tolist() == [2]


def test_metrics_logs_and_model_control_are_kept_for_assertions(write_model: WriteModel) -> None:
    source = """
        class TritonPythonModel:
            def initialize(self, args):
                self.family = pb_utils.MetricFamily("seen", "d", pb_utils.MetricFamily.COUNTER)
                self.metric = self.family.Metric(labels={"model": "m"})
                self.times = pb_utils.MetricFamily("times", "d", pb_utils.MetricFamily.HISTOGRAM)
                self.time = self.times.Metric(buckets=[1.0, 2.0])
                pb_utils.load_model("other")
            def execute(self, requests):
                self.metric.increment(len(requests))
                self.time.observe(1.5)
                assert self.metric.value() == 1
                pb_utils.Logger.log_warn("careful")
                return [pb_utils.InferenceResponse([]) for _ in requests]
        """
    with load_model(write_model(source), config={}) as model:
        model.infer()
    assert model.metrics.names == ["seen", "times"]
    assert model.metrics.value("seen", {"model": "m"}) == 1
    assert model.metrics.observations("times") == [1.5]
    assert [(entry.level, entry.file, entry.message) for entry in model.logs] == [("WARNING", "model.py", "careful")]
    assert model.controls == [("load", ("other", None, {}))]


def test_rescheduled_requests_run_again(write_model: WriteModel) -> None:
    source = """
        class TritonPythonModel:
            count = 0
            def execute(self, requests):
                self.count += 1
                if self.count < 3:
                    for request in requests:
                        request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                    return [None] * len(requests)
                return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array([self.count]))]) for _ in requests]
        """
    with load_model(write_model(source), config={}) as model:
        assert [result["Y"].tolist() for result in model.infer_many([{}, {}])] == [[3], [3]]


def test_request_options_reach_the_model(write_model: WriteModel) -> None:
    source = """
        class TritonPythonModel:
            def execute(self, requests):
                r = requests[0]
                seen = [r.request_id(), str(r.correlation_id()), str(r.flags()), r.parameters(), str(r.is_cancelled())]
                return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.array(seen, dtype=object))])]
        """
    request = Request({}, "id", correlation_id=4, flags=1, parameters={"a": 1}, is_cancelled=True)
    with load_model(write_model(source), config={}) as model:
        assert model.infer(request)["Y"].tolist() == [b"id", b"4", b"1", b'{"a":1}', b"True"]


def test_auto_completion_is_run_first_unless_it_is_disabled(write_model: WriteModel) -> None:
    source = """
        class TritonPythonModel:
            @staticmethod
            def auto_complete_config(config):
                config.set_max_batch_size(4)
                return config
        """
    folder = write_model(source)
    with load_model(folder, config={}) as model:
        assert model.config["max_batch_size"] == 4
    with load_model(folder, config={}, is_auto_complete_enabled=False) as model:
        assert model.config["max_batch_size"] == 0


@pytest.mark.parametrize(("body", "is_ready"), [("pass", True), ("def is_ready(self): return False", False)])
def test_readiness_is_asked_of_the_model(write_model: WriteModel, body: str, is_ready: bool) -> None:
    with load_model(write_model(f"class TritonPythonModel:\n    {body}"), config={}) as model:
        assert model.is_ready() is is_ready


def test_models_do_not_outlive_their_block(write_model: WriteModel) -> None:
    with load_model(write_model("class TritonPythonModel: pass"), config={}):
        assert pb_utils.get_model_dir().endswith("model/1")
    with pytest.raises(pb_utils.TritonModelException):
        pb_utils.get_model_dir()


def test_configuration_is_read_from_the_folder_or_from_another_file(write_model: WriteModel, tmp_path: Path) -> None:
    folder = write_model("class TritonPythonModel: pass")
    fields = (
        'input [{ name: "X" data_type: TYPE_FP32 dims: [1] }]\noutput [{ name: "Y" data_type: TYPE_FP32 dims: [1] }]'
    )
    (folder / "config.pbtxt").write_text(f'backend: "python"\nmax_batch_size: 2\n{fields}\n')
    (tmp_path / "other.pbtxt").write_text(f'backend: "python"\nmax_batch_size: 3\n{fields}\n')
    with load_model(folder) as model:
        assert model.config["max_batch_size"] == 2
        assert model.config["output"][0]["name"] == "Y"
        assert model.config["instance_group"][0]["kind"] == "KIND_CPU"
    with load_model(folder, config=tmp_path / "other.pbtxt") as model:
        assert model.config["max_batch_size"] == 3
