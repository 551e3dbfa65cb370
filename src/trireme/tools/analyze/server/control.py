"""Models of a running server, loaded with other configurations and put back to their own."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from trireme.tools.analyze.configuration.variant_config import instance_count, variant_config
from trireme.tools.analyze.trial import Setting
from trireme.tools.client.errors import AnswerError, ClientError, UnknownModelError, UnreachableError
from trireme.tools.client.model import unknown_model
from trireme.tools.client.port import ServerClient

Config = Mapping[str, Any]
_RETRY_S = 1.0
_NOT_ALLOWED = "not allowed"
_ADVICE = "\nmodels can be changed where the server runs with --model-control-mode explicit"


class ControlRefusedError(AnswerError):
    """The server lets nobody change its models."""


class ModelControl:
    """The one owner of what is loaded; calls raise ClientError."""

    def __init__(
        self, client: ServerClient, quick_client: ServerClient, max_retries: int, tell: Callable[[str], None]
    ) -> None:
        """`quick_client` waits a short time alone, to find out whether the server answers at all."""
        self._client = client
        self._quick_client = quick_client
        self._max_retries = max_retries
        self._tell = tell
        self._own: dict[str, Config] = {}
        self._current: dict[str, Setting] = {}
        self._touched: set[str] = set()
        self._unloaded: set[str] = set()
        """Models that were not loaded when they were found."""

    def own_config(self, model: str) -> Config:
        """The model's configuration as it was found; looked up once. A model that is not loaded is loaded."""
        if model not in self._own:
            if not self._is_ready(model):
                self._unloaded.add(model)
                self._change(model, lambda: self._load(model, None))
            self._own[model] = self._client.config(model, "")
            self._current[model] = Setting()
        return self._own[model]

    def use(self, model: str, setting: Setting, is_cpu_only: bool = False) -> None:
        """Has the server run the model so; nothing happens where it does already."""
        if self._current.get(model) == setting:
            return
        own = self.own_config(model)
        self._current.pop(model, None)
        if setting.is_default:
            self._change(model, lambda: self._restore(model))
        else:
            config = json.dumps(variant_config(own, setting, is_cpu_only))
            self._change(model, lambda: self._load(model, config))
        self._current[model] = setting

    def is_in_use(self, model: str, setting: Setting) -> bool:
        """Whether the server, as far as it tells, still runs the model so; asks it."""
        if setting != self._current.get(model):
            return True  # it could not be loaded, which is another matter
        config = self._client.config(model, "")
        expected = variant_config(self.own_config(model), setting)
        return instance_count(config) == instance_count(expected) and int(config.get("max_batch_size", 0)) == int(
            expected.get("max_batch_size", 0)
        )

    def reload(self, model: str) -> None:
        """As the repository has it now."""
        self._current.pop(model, None)
        self._load(model, None)

    def forget(self) -> None:
        """The server may have been started anew: nothing is known of what it runs."""
        self._current.clear()

    def keep(self, models: Iterable[str]) -> None:
        """Those stay as the repository has them now; one that was not loaded when it was found is unloaded."""
        for model in models:
            self._touched.discard(model)
            if model in self._unloaded:
                with contextlib.suppress(ClientError):  # it is loaded as it is to be, which is no reason to give up
                    self._client.unload(model, False)

    def put_back(self, models: Iterable[str] = ()) -> list[str]:
        """Every model as it was found, these as well, whether they are known to be touched or not; what could not be
        put back, as sentences."""
        for model in models:
            self._touched.add(model)
            self._current.pop(model, None)
        touched = sorted(model for model in self._touched if not self._is_as_found(model))
        self._touched.clear()
        self._current.clear()
        try:
            if touched:
                self._quick_client.index()
        except ClientError as error:
            return [_not_put_back(model, error) for model in touched]
        problems = []
        for model in touched:
            try:
                if model in self._unloaded:
                    self._client.unload(model, False)
                else:
                    self._restore(model)
            except ClientError as error:
                problems.append(_not_put_back(model, error))
        return problems

    def put_back_late(self, models: Iterable[str]) -> None:
        """Those, whether this process knows that they were touched or not, once the server answers again."""
        self.forget()
        self.wait_for_server()
        self.put_back(models)

    def wait_for_server(self) -> None:
        """Until it answers again; raises UnreachableError where it does not."""
        for attempt in range(self._max_retries + 1):
            try:
                self._quick_client.index()
                return
            except UnreachableError:
                if attempt == self._max_retries:
                    raise
                if attempt == 0:
                    self._tell(f"the server at {self._client.place} does not answer; waiting for it")
                time.sleep(_RETRY_S)

    def _is_as_found(self, model: str) -> bool:
        return self._current.get(model) == Setting() and model not in self._unloaded

    def _restore(self, model: str) -> None:
        """From the repository; where that is not what was found, with what was found."""
        self._load(model, None)
        own = self._own.get(model)
        if own is not None and self._client.config(model, "") != own:
            self._load(model, json.dumps(own))

    def _is_ready(self, model: str) -> bool:
        states = [entry.get("state", "") for entry in self._client.index() if entry["name"] == model]
        if not states:
            raise UnknownModelError(unknown_model(self._client, model, f"there is no model '{model}'"))
        return "READY" in states

    def _change(self, model: str, act: Callable[[], None]) -> None:
        """From here on there is something to put back, unless the server lets nobody change anything."""
        was_touched = model in self._touched
        self._touched.add(model)
        try:
            act()
        except ControlRefusedError:
            if not was_touched:
                self._touched.discard(model)
            raise

    def _load(self, model: str, config: str | None) -> None:
        try:
            self._client.load(model, config)
        except AnswerError as error:
            if _NOT_ALLOWED in str(error):
                raise ControlRefusedError(f"{error}{_ADVICE}") from None
            raise


def _not_put_back(model: str, error: ClientError) -> str:
    return f"model '{model}' could not be put back to its own configuration: {error}"
