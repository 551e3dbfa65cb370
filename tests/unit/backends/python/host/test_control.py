"""Model control, metrics and log lines asked by a model."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from trireme.backends.python.channel import messages
from trireme.backends.python.host.control import Control
from trireme.core.errors import ErrorKind, InvalidArgumentError, NotFoundError


class Models:
    """Implements `ModelControlPort`."""

    def __init__(self) -> None:
        self.loaded: list[Any] = []

    async def load(self, name: str, config: str | None, files: Any) -> None:
        if name == "broken":
            raise NotFoundError("no such model")
        self.loaded.append((name, config, dict(files)))

    async def unload(self, name: str, unload_dependents: bool) -> None:
        raise RuntimeError("a bug")

    async def is_model_ready(self, name: str, version: str) -> bool:
        return name == "there"


class Metrics:
    """Implements what is used of `CustomMetricsPort`."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def create_family(self, owner: str, name: str, description: str, kind: str) -> int:
        self.calls.append((owner, name, description, kind))
        return 5

    def create_metric(self, family: int, labels: Any, buckets: Any) -> int:
        return 6

    def update(self, metric: int, operation: str, value: float) -> None:
        raise InvalidArgumentError("counters only go up")

    def value(self, metric: int) -> float:
        return 1.5

    def delete_metric(self, metric: int) -> None:
        self.calls.append(("delete_metric", metric))

    def delete_family(self, family: int) -> None:
        self.calls.append(("delete_family", family))

    def release(self, owner: str) -> None:
        self.calls.append(("release", owner))


def control(make: SimpleNamespace) -> tuple[Control, Any, Models, Metrics]:
    link, models, metrics = make.link(), Models(), Metrics()
    return Control(link, "m_0", "m", models, metrics), link, models, metrics  # type: ignore[arg-type]


def run(asking: Control, *questions: tuple[Any, ...]) -> None:
    async def main() -> None:
        for question in questions:
            asking.on_control(question)
        await asyncio.gather(*asking._tasks)

    asyncio.run(main())


def test_model_control_is_answered_when_it_is_done(make: SimpleNamespace) -> None:
    asking, link, models, _ = control(make)
    run(
        asking,
        (messages.CONTROL, 1, "load", ("x", "", {"file:1/model.py": b"pass"})),
        (messages.CONTROL, 2, "is_model_ready", ("there", "")),
    )
    assert models.loaded == [("x", None, {"file:1/model.py": b"pass"})]
    assert sorted(link.sent) == [(messages.CONTROL_RESULT, 1, None, None), (messages.CONTROL_RESULT, 2, True, None)]


@pytest.mark.parametrize(
    ("operation", "arguments", "error"),
    [
        ("load", ("broken", None, {}), (int(ErrorKind.NOT_FOUND), "no such model")),
        ("unload", ("x", False), (int(ErrorKind.INTERNAL), "RuntimeError: a bug")),
        ("dance", (), (int(ErrorKind.INVALID_ARGUMENT), "unknown model control operation 'dance'")),
    ],
)
def test_a_failure_of_model_control_goes_back(
    make: SimpleNamespace, operation: str, arguments: Any, error: Any
) -> None:
    asking, link, _, _ = control(make)
    run(asking, (messages.CONTROL, 3, operation, arguments))
    assert link.sent == [(messages.CONTROL_RESULT, 3, None, error)]


def test_metrics_belong_to_the_instance_and_go_with_it(make: SimpleNamespace) -> None:
    asking, link, _, metrics = control(make)
    asking.on_metric((messages.METRIC, 1, "create_family", ("requests", "how many", "counter")))
    asking.on_metric((messages.METRIC, 2, "value", (6,)))
    asking.close()
    assert link.sent == [(messages.CONTROL_RESULT, 1, 5, None), (messages.CONTROL_RESULT, 2, 1.5, None)]
    assert metrics.calls == [("m_0", "requests", "how many", "counter"), ("release", "m_0")]


def test_a_failed_metric_operation_is_reported_or_logged(
    make: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    asking, link, _, _ = control(make)
    asking.on_metric((messages.METRIC, 4, "update", (6, "increment", -1.0)))
    assert link.sent == [(messages.CONTROL_RESULT, 4, None, (int(ErrorKind.INVALID_ARGUMENT), "counters only go up"))]
    asking.on_metric((messages.METRIC, 0, "update", (6, "increment", -1.0)))
    assert len(link.sent) == 1
    assert "counters only go up" in caplog.text


def test_log_lines_carry_the_models_file_and_line(make: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    asking, _, _, _ = control(make)
    with caplog.at_level(logging.INFO, logger="trireme.model.m"):
        asking.on_log((messages.LOG, "W", "/repo/m/1/model.py", 17, "100% odd"))
        asking.on_log((messages.LOG, "V", "/repo/m/1/model.py", 18, "not wanted"))
    (record,) = caplog.records
    assert (record.levelno, record.filename, record.lineno) == (logging.WARNING, "model.py", 17)
    assert record.getMessage() == "100% odd"
    assert record.name == "trireme.model.m"


def test_log_lines_beyond_the_budget_are_dropped_and_counted(
    make: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="trireme.model.m")

    async def main() -> None:
        asking = control(make)[0]
        for number in range(10_000):
            asking.on_log((messages.LOG, "I", "model.py", 1, f"line {number}"))
        asking.close()

    asyncio.run(main())
    *lines, last = [record.getMessage() for record in caplog.records]
    assert len(lines) < 5000
    assert last.startswith(f"[m_0] {10_000 - len(lines)} lines of this model's output were dropped")
