"""What a model asks of the server besides inference: model control, custom metrics, lines in the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from trireme.backends.python.channel import messages
from trireme.backends.python.host.link import HostLink
from trireme.backends.python.host.tensor_messages import error_message
from trireme.backends.python.process.log_budget import LogBudget, dropped_text
from trireme.core.errors import InvalidArgumentError, ServingError
from trireme.core.ports import CustomMetricsPort, ModelControlPort

log = logging.getLogger(__name__)

_LEVELS = {"I": logging.INFO, "W": logging.WARNING, "E": logging.ERROR, "V": logging.DEBUG}


class Control:
    """Serves one worker process; its metrics belong to the instance's name and go with the process."""

    def __init__(
        self, link: HostLink, owner: str, model_name: str, models: ModelControlPort, metrics: CustomMetricsPort
    ) -> None:
        self._link = link
        self._owner = owner
        self._models = models
        self._metrics = metrics
        self._logger = logging.getLogger(f"trireme.model.{model_name}")
        self._budget = LogBudget(self._report_dropped)
        self._tasks: set[asyncio.Task[None]] = set()
        self._operations: dict[str, Callable[..., Any]] = {
            "create_family": self._create_family,
            "create_metric": metrics.create_metric,
            "update": metrics.update,
            "value": metrics.value,
            "delete_metric": metrics.delete_metric,
            "delete_family": metrics.delete_family,
        }

    def on_control(self, message: tuple[Any, ...]) -> None:
        """Load, unload or ask after a model (CONTROL); runs on, and is answered when it is done."""
        _, token, operation, arguments = message
        task = asyncio.get_running_loop().create_task(self._control(token, operation, arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def on_metric(self, message: tuple[Any, ...]) -> None:
        """Create, change or read a metric (METRIC)."""
        _, token, operation, arguments = message
        value, failure = None, None
        try:
            value = self._operation(operation)(*arguments)
        except Exception as error:
            failure = error_message(error)
            if token == 0:
                log.warning("metric operation '%s' of '%s' failed: %s", operation, self._owner, failure[1])
        if token:
            self._link.send((messages.CONTROL_RESULT, token, value, failure))

    def on_log(self, message: tuple[Any, ...]) -> None:
        """A line written through `pb_utils.Logger` (LOG)."""
        _, letter, path, line, text = message
        level = _LEVELS.get(letter, logging.INFO)
        if self._logger.isEnabledFor(level) and self._budget.take(len(repr(text))):  # as it is escaped
            self._logger.handle(self._logger.makeRecord(self._logger.name, level, path, line, text, (), None))

    def close(self) -> None:
        """The worker is gone: its metrics go, and what it had begun ends without an answer."""
        self._metrics.release(self._owner)
        self._budget.close()

    def _report_dropped(self, count: int) -> None:
        self._logger.warning("[%s] %s", self._owner, dropped_text(count))

    async def _control(self, token: int, operation: str, arguments: tuple[Any, ...]) -> None:
        value, failure = None, None
        try:
            value = await self._control_operation(operation, arguments)
        except Exception as error:
            if not isinstance(error, ServingError):
                log.exception("'%s' asked by '%s' failed", operation, self._owner)
            failure = error_message(error)
        self._link.send((messages.CONTROL_RESULT, token, value, failure))

    async def _control_operation(self, operation: str, arguments: tuple[Any, ...]) -> Any:
        if operation == "load":
            name, config, files = arguments
            return await self._models.load(name, config or None, files or {})
        if operation == "unload":
            return await self._models.unload(*arguments)
        if operation == "is_model_ready":
            return await self._models.is_model_ready(*arguments)
        raise InvalidArgumentError(f"unknown model control operation '{operation}'")

    def _operation(self, name: str) -> Callable[..., Any]:
        operation = self._operations.get(name)
        if operation is None:
            raise InvalidArgumentError(f"unknown metric operation '{name}'")
        return operation

    def _create_family(self, name: str, description: str, kind: str) -> int:
        return self._metrics.create_family(self._owner, name, description, kind)
