"""A worker from CONFIGURE to FINALIZED: loading, auto-completion, initialization, readiness, the end."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trireme.backends.python.channel import messages

Start = Callable[..., Any]


def failure_of(answer: tuple[Any, ...]) -> str:
    assert answer[0] == messages.FAILED
    assert answer[1] == 1
    text: str = answer[2]
    return text


def test_model_is_imported_as_version_dot_model_and_sees_its_arguments(start_worker: Start, form: Any) -> None:
    host = start_worker(
        """
        import os, sys
        class TritonPythonModel:
            def initialize(self, args):
                self.args = args
            def execute(self, requests):
                pb_utils.Logger.log_info(repr((__name__, __package__, __file__, self.args, pb_utils.get_model_dir())))
                return [pb_utils.InferenceResponse([]) for _ in requests]
        """
    )
    facts = {"is_async": False, "has_is_ready": False, "devices": ()}
    assert host.initialize(model_name="model", model_version="1") == facts
    host.execute(form())
    name, package, path, arguments, folder = eval(host.receive(messages.LOG)[4])
    assert (name, package) == ("1.model", "1")
    assert path == f"{folder}/model.py"
    assert arguments == {"model_name": "model", "model_version": "1"}


def test_version_and_model_folders_come_last_on_the_path(start_worker: Start) -> None:
    host = start_worker("class TritonPythonModel: pass", source_path_extra=["/extra"])
    host.initialize()
    folder = host.settings["model_dir"]
    assert sys.path[-3:] == [f"{folder}/1", folder, "/extra"]


def test_a_model_finds_its_own_files_from_another_working_directory(
    start_worker: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a server is often told `model_repository`
    folders = {"model_dir": "model", "version_dir": "model/1", "model_file": "model.py"}
    host = start_worker(
        """
        import os
        class TritonPythonModel:
            def initialize(self, args):
                os.chdir("/")
                from . import near
                import sibling_from_afar
                os.stat(pb_utils.get_model_dir())
        """,
        **folders,
    )
    for name in ("near", "sibling_from_afar"):
        (tmp_path / "model" / "1" / f"{name}.py").write_text("VALUE = 1\n")
    host.initialize()


def test_sibling_modules_can_be_imported_both_ways(start_worker: Start, tmp_path: Any) -> None:
    source = "from . import near\nfrom sibling_of_mine import VALUE\nclass TritonPythonModel: pass"
    (tmp_path / "model" / "1").mkdir(parents=True)
    for name in ("near", "sibling_of_mine"):
        (tmp_path / "model" / "1" / f"{name}.py").write_text("VALUE = 1\n")
    (tmp_path / "model" / "1").rename(tmp_path / "kept")
    (tmp_path / "model").rmdir()
    host = start_worker(source)
    for name in ("near", "sibling_of_mine"):
        (tmp_path / "kept" / f"{name}.py").rename(tmp_path / "model" / "1" / f"{name}.py")
    host.initialize()


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("def f(:\n  pass", "SyntaxError: invalid syntax (model.py, line 3)"),
        ("x = 1", "AttributeError: module '1.model' has no attribute 'TritonPythonModel'"),
    ],
)
def test_model_that_cannot_be_loaded_fails_with_pythons_own_words(start_worker: Start, source: str, text: str) -> None:
    assert failure_of(start_worker(source).ask((messages.INITIALIZE, {}))) == text


def test_import_error_names_file_and_line(start_worker: Start) -> None:
    host = start_worker("import nonexistent_thing")
    path = host.settings["model_file"]
    answer = host.ask((messages.INITIALIZE, {}))
    assert failure_of(answer) == (
        f"ModuleNotFoundError: No module named 'nonexistent_thing'\n\nAt:\n  {path}(3): <module>\n"
    )
    assert answer[3].startswith("Traceback (most recent call last)")


def test_exception_in_initialize_lists_the_frames_innermost_first(start_worker: Start) -> None:
    host = start_worker(
        """
        class TritonPythonModel:
            def initialize(self, args):
                self.deep()
            def deep(self):
                raise KeyError("k")
        """
    )
    path = host.settings["model_file"]
    assert failure_of(host.ask((messages.INITIALIZE, {}))) == (
        f"KeyError: 'k'\n\nAt:\n  {path}(8): deep\n  {path}(6): initialize\n"
    )


def test_exception_without_a_message_is_marked_so(start_worker: Start) -> None:
    host = start_worker("class TritonPythonModel:\n    def __init__(self):\n        raise ValueError()")
    assert failure_of(host.ask((messages.INITIALIZE, {}))).startswith("ValueError: <EMPTY MESSAGE>\n\nAt:\n")


def test_calls_to_other_models_are_refused_during_initialize(start_worker: Start) -> None:
    host = start_worker(
        """
        class TritonPythonModel:
            def initialize(self, args):
                pb_utils.InferenceRequest(model_name="m", inputs=[], requested_output_names=[]).exec()
        """
    )
    path = host.settings["model_file"]
    assert failure_of(host.ask((messages.INITIALIZE, {}))) == (
        f"TritonModelException: BLS is only supported during the 'execute' function.\n\nAt:\n  {path}(6): initialize\n"
    )


def test_auto_completion_returns_the_completed_configuration_and_the_model_serves_after_it(start_worker: Start) -> None:
    host = start_worker(
        """
        class TritonPythonModel:
            @staticmethod
            def auto_complete_config(config):
                config.set_max_batch_size(4)
                return config
        """
    )
    answer = host.ask((messages.AUTO_COMPLETE, json.dumps({"name": "model", "max_batch_size": 0})))
    assert answer[0] == messages.COMPLETED
    assert json.loads(answer[1])["max_batch_size"] == 4
    host.initialize()


def test_configuration_comes_back_unchanged_where_the_model_does_not_complete_it(start_worker: Start) -> None:
    host = start_worker("class TritonPythonModel: pass")
    assert host.ask((messages.AUTO_COMPLETE, '{"name":  "model"}')) == (messages.COMPLETED, '{"name":  "model"}')


def test_auto_completion_must_return_a_configuration(start_worker: Start) -> None:
    host = start_worker(
        "class TritonPythonModel:\n    @staticmethod\n    def auto_complete_config(config): return None"
    )
    assert failure_of(host.ask((messages.AUTO_COMPLETE, "{}"))) == (
        "auto_complete_config function in model 'model' must return a valid pb.ModelConfig object."
    )


def test_model_control_is_refused_during_auto_completion(start_worker: Start) -> None:
    host = start_worker(
        """
        class TritonPythonModel:
            @staticmethod
            def auto_complete_config(config):
                pb_utils.load_model("other")
        """
    )
    assert "supported in 'initialize' and 'execute' only" in failure_of(host.ask((messages.AUTO_COMPLETE, "{}")))


@pytest.mark.parametrize(
    ("body", "is_ready", "reason"),
    [
        ("def is_ready(self): return True", True, ""),
        ("def is_ready(self): return False", False, ""),
        ("async def is_ready(self): return True", True, ""),
        ("def is_ready(self): return 1", False, "is_ready() must return a boolean value"),
        ("def is_ready(self): raise RuntimeError('down')", False, "RuntimeError: down"),
    ],
)
def test_readiness_is_what_the_model_says(start_worker: Start, body: str, is_ready: bool, reason: str) -> None:
    host = start_worker(f"class TritonPythonModel:\n    {body}")
    assert host.initialize()["has_is_ready"]
    answer = host.ask((messages.CHECK_READY, 5))
    assert answer[:3] == (messages.READINESS, 5, is_ready)
    assert answer[3].startswith(reason)


def test_finalize_is_called_and_the_worker_ends(start_worker: Start) -> None:
    host = start_worker(
        """
        class TritonPythonModel:
            def finalize(self):
                pb_utils.Logger.log_warn("bye")
        """
    )
    host.initialize()
    assert host.ask((messages.FINALIZE,))[:2] == (messages.LOG, "W")
    assert host.receive() == (messages.FINALIZED,)
    host.thread.join(10)
    assert not host.thread.is_alive()


def test_exception_in_finalize_is_logged_and_the_worker_ends_all_the_same(start_worker: Start) -> None:
    host = start_worker("class TritonPythonModel:\n    def finalize(self):\n        raise ValueError('late')")
    host.initialize()
    kind, letter, file, line, text = host.ask((messages.FINALIZE,))
    assert (kind, letter, file, line) == (messages.LOG, "E", "model.py", 5)
    assert "ValueError: late" in text
    assert host.receive() == (messages.FINALIZED,)


def test_final_configuration_decides_whether_the_model_is_decoupled(start_worker: Start) -> None:
    host = start_worker("class TritonPythonModel: pass", is_decoupled=False)
    host.initialize(model_config=json.dumps({"model_transaction_policy": {"decoupled": True}}))
    assert host.worker.runtime.is_decoupled
