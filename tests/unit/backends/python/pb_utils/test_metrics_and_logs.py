"""Metrics, model control and log lines: what a model says to the server besides its answers."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import triton_python_backend_utils as pb_utils
from trireme.backends.python.channel import messages
from trireme.backends.python.pb_utils import logger as pb_logger

Start = Callable[..., Any]
Family = pb_utils.MetricFamily

IDLE = "class TritonPythonModel:\n    def execute(self, requests): return [pb_utils.InferenceResponse([])]"


@pytest.fixture
def metrics_of(serving: Start, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A running worker, whose metric and control questions are answered from a list instead of the socket."""

    def start(*answers: Any) -> Any:
        host = serving(IDLE)
        left = list(answers)
        host.asked = []

        def ask(kind: int, operation: str, arguments: tuple[Any, ...]) -> Any:
            host.asked.append((kind, operation, arguments))
            answer = left.pop(0) if left else None
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(host.worker.server_calls, "ask", ask)
        return host

    return start


def test_questions_are_numbered_and_answered_over_the_link(serving: Start, form: Any) -> None:
    host = serving(
        """
        class TritonPythonModel:
            def execute(self, requests):
                ready = pb_utils.is_model_ready("a", "2")
                try:
                    pb_utils.load_model("b", config="{}", files={"file:1/model.py": b"x"})
                except pb_utils.TritonModelException as error:
                    pb_utils.Logger.log_error(f"{ready}: {error}")
                return [pb_utils.InferenceResponse([])]
        """
    )
    host.execute(form(1))
    kind, token, operation, arguments = host.receive()
    assert (kind, operation, arguments) == (messages.CONTROL, "is_model_ready", ("a", "2"))
    kind, token, operation, arguments = host.ask((messages.CONTROL_RESULT, token, True, None))
    assert (operation, arguments) == ("load", ("b", "{}", {"file:1/model.py": b"x"}))
    answer = host.ask((messages.CONTROL_RESULT, token, None, (4, "no such thing")))
    assert answer[:2] == (messages.LOG, "E")
    assert answer[4] == "True: Failed to load model: no such thing"


def test_model_control_passes_its_arguments_on(metrics_of: Any) -> None:
    host = metrics_of(None, None, True)
    pb_utils.load_model("a")
    pb_utils.unload_model("a", unload_dependents=True)
    assert pb_utils.is_model_ready("a") is True
    assert host.asked == [
        (messages.CONTROL, "load", ("a", None, {})),
        (messages.CONTROL, "unload", ("a", True)),
        (messages.CONTROL, "is_model_ready", ("a", "")),
    ]


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda: pb_utils.unload_model("a"), "Failed to unload model: why"),
        (lambda: pb_utils.is_model_ready("a"), "Failed to check model readiness: why"),
        (lambda: Family("n", "d", Family.COUNTER), "Error when creating MetricFamily: why"),
    ],
)
def test_refusals_of_the_server_are_raised(metrics_of: Any, use: Callable[[], Any], text: str) -> None:
    metrics_of(pb_utils.TritonModelException("why"))
    with pytest.raises(pb_utils.TritonModelException, match=f"^{text}$"):
        use()


def test_files_must_be_a_dictionary(metrics_of: Any) -> None:
    metrics_of()
    with pytest.raises(pb_utils.TritonModelException, match="files should be a dictionary of file paths"):
        pb_utils.load_model("a", files=[])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        pb_utils.load_model("a", files={"x": "text"})  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        pb_utils.load_model(None)  # type: ignore[arg-type]


def test_metrics_are_created_changed_read_and_deleted(metrics_of: Any) -> None:
    host = metrics_of(3, 4, 2.5)
    family = Family(name="n", description="d", kind=Family.GAUGE)
    metric = family.Metric(labels={"a": "b"})
    metric.set(2)
    metric.increment(-0.5)
    assert metric.value() == 2.5
    assert host.asked == [
        (messages.METRIC, "create_family", ("n", "d", "gauge")),
        (messages.METRIC, "create_metric", (3, {"a": "b"}, None)),
        (messages.METRIC, "value", (4,)),
    ]
    assert host.receive() == (messages.METRIC, 0, "update", (4, "set", 2.0))
    assert host.receive() == (messages.METRIC, 0, "update", (4, "increment", -0.5))
    del metric
    gc.collect()
    assert host.receive() == (messages.METRIC, 0, "delete_metric", (4,))
    del family
    gc.collect()
    assert host.receive() == (messages.METRIC, 0, "delete_family", (3,))


COUNTER = "TRITONSERVER_METRIC_KIND_COUNTER"


@pytest.mark.parametrize(
    ("kind", "operation", "value", "text"),
    [
        ("COUNTER", "increment", -1, f"increment metric value: {COUNTER} can only be incremented monotonically"),
        ("COUNTER", "set", 1, f"set metric value: {COUNTER} does not support Set"),
        ("COUNTER", "observe", 1, f"observe metric value: {COUNTER} does not support Observe"),
        ("GAUGE", "observe", 1, "observe metric value: TRITONSERVER_METRIC_KIND_GAUGE does not support Observe"),
        ("HISTOGRAM", "increment", 1, "increment metric value: TRITONSERVER_METRIC_KIND_HISTOGRAM does not support"),
        ("HISTOGRAM", "set", 1, "set metric value: TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Set"),
    ],
)
def test_operations_that_do_not_fit_the_kind_are_refused(
    metrics_of: Any, kind: str, operation: str, value: float, text: str
) -> None:
    metrics_of(1, 2)
    family = Family("n", "d", getattr(Family, kind))
    metric = family.Metric(buckets=[1.0] if kind == "HISTOGRAM" else None)
    with pytest.raises(pb_utils.TritonModelException, match=f"^Failed to {text}"):
        getattr(metric, operation)(value)


def test_histograms_have_no_value(metrics_of: Any) -> None:
    metrics_of(1, 2)
    family = Family("n", "d", Family.HISTOGRAM)
    metric = family.Metric(buckets=[0.1, 1])
    metric.observe(3)
    with pytest.raises(pb_utils.TritonModelException, match=r"HISTOGRAM does not support Value$"):
        metric.value()


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        (Family.COUNTER, {"labels": []}, "Failed to create metric. Labels must be a dictionary."),
        (Family.COUNTER, {"buckets": [1]}, "Failed to create metric. Unexpected buckets found."),
        (Family.HISTOGRAM, {}, "Failed to create metric. Missing required buckets."),
        (Family.HISTOGRAM, {"buckets": 3}, "Failed to create metric. Buckets must be a list."),
        (Family.COUNTER, {"labels": {"a": 1}}, "Error when creating Metric: label names and values must be str"),
    ],
)
def test_unfit_metrics_are_refused(metrics_of: Any, kind: Any, arguments: dict[str, Any], text: str) -> None:
    metrics_of(1)
    family = Family("n", "d", kind)
    with pytest.raises(pb_utils.TritonModelException) as caught:
        family.Metric(**arguments)
    assert str(caught.value) == text


def test_metric_of_a_deleted_family_says_so(metrics_of: Any) -> None:
    metrics_of(1, 2)
    family = Family("n", "d", Family.COUNTER)
    metric = family.Metric()
    del family
    gc.collect()
    with pytest.raises(pb_utils.TritonModelException, match="'MetricFamily' has been deleted"):
        metric.increment(1)


@pytest.mark.parametrize("arguments", [(None, "d", Family.COUNTER), ("n", None, Family.COUNTER), ("n", "d", 1)])
def test_unfit_families_are_type_errors(metrics_of: Any, arguments: tuple[Any, ...]) -> None:
    metrics_of()
    with pytest.raises(TypeError):
        Family(*arguments)


@pytest.mark.parametrize(
    ("write", "letter"),
    [
        (lambda: pb_utils.Logger.log("text"), "I"),
        (lambda: pb_utils.Logger.log("text", pb_utils.Logger.WARNING), "W"),
        (lambda: pb_utils.Logger.log_info("text"), "I"),
        (lambda: pb_utils.Logger.log_warn("text"), "W"),
        (lambda: pb_utils.Logger.log_error("text"), "E"),
    ],
)
def test_log_lines_carry_level_file_and_line(serving: Start, write: Callable[[], None], letter: str) -> None:
    host = serving(IDLE)
    write()
    line = write.__code__.co_firstlineno  # type: ignore[attr-defined]
    assert host.receive() == (messages.LOG, letter, "test_metrics_and_logs.py", line, "text")


def test_verbose_lines_are_sent_only_when_wanted(serving: Start) -> None:
    host = serving(IDLE)
    pb_utils.Logger.log_verbose("unheard")
    host.send((messages.LOG_LEVEL, 1))
    host.ask((messages.CHECK_READY, 1))
    pb_utils.Logger.log_verbose("heard")
    assert host.receive()[4] == "heard"


@pytest.mark.parametrize("arguments", [(None,), (1,), ("a", None), ("a", 1)])
def test_unfit_log_calls_are_type_errors(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        pb_utils.Logger.log(*arguments)
    with pytest.raises(TypeError):
        pb_utils.Logger.log_info(None)  # type: ignore[arg-type]


def test_lines_go_to_stderr_where_there_is_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    pb_utils.Logger.log_warn("alone")
    assert "test_metrics_and_logs.py" in (line := capsys.readouterr().err)
    assert line.startswith("W ")
    assert line.endswith("] alone\n")


@contextmanager
def fresh_logging(*, from_info: bool = False) -> Iterator[logging.Logger]:
    """Standard logging as a worker's process has it, and afterwards as it was."""
    handlers, level, last_resort = logging.root.handlers[:], logging.root.level, logging.lastResort
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    undo = pb_logger.route_standard_logging(from_info=from_info)
    try:
        yield logging.getLogger("a.model")
    finally:
        undo()
        assert logging.lastResort is last_resort
        assert logging.root.level == logging.WARNING
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)


def test_standard_logging_becomes_lines_of_the_server(serving: Start) -> None:
    host = serving(IDLE)
    with fresh_logging() as log:
        log.info("not this")
        log.warning("%s", "warning")
        log.error("error")
    with fresh_logging(from_info=True) as log:
        log.debug("not this")
        log.info("info")
    lines = [host.receive() for _ in range(3)]
    expected = [("W", "[model_0_0] warning"), ("E", "[model_0_0] error"), ("I", "[model_0_0] info")]
    assert [(line[1], line[4]) for line in lines] == expected
    assert lines[0][2] == "test_metrics_and_logs.py"


def test_the_root_logger_and_its_configuration_are_left_alone(
    serving: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    host = serving(IDLE)
    configure = logging.basicConfig
    with fresh_logging() as log:
        assert (logging.root.handlers, logging.root.level) == ([], logging.WARNING)
        assert logging.basicConfig is configure
        logging.warning("by the module's function")  # which configures, as it does without us
        log.warning("after it")
        assert len(logging.root.handlers) == 1
        logging.root.handlers.clear()
    pb_utils.Logger.log_info("next")
    assert host.receive()[4] == "next"
    assert capsys.readouterr().err == "WARNING:root:by the module's function\nWARNING:a.model:after it\n"


def test_logging_that_the_model_configures_itself_is_left_to_it(serving: Start) -> None:
    host = serving(IDLE)
    records: list[logging.LogRecord] = []

    class Own(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    with fresh_logging() as log:
        logging.basicConfig(handlers=[Own()])
        log.warning("mine")
    pb_utils.Logger.log_info("next")
    assert host.receive()[4] == "next"
    assert [record.getMessage() for record in records] == ["mine"]
