"""Models of a running server, loaded with other configurations and put back to their own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class OwnState:
    """How a model was before it was touched."""

    config: Config
    was_loaded: bool


class ModelControl:
    """The one owner of what is loaded; calls raise ClientError."""

    def __init__(self, client: ServerClient, max_retries: int, tell: Callable[[str], None]) -> None:
        self._client = client
        self._max_retries = max_retries
        self._tell = tell
        self._own: dict[str, OwnState] = {}
        self._current: dict[str, Setting] = {}
        self._touched: set[str] = set()
        self.reload_s: dict[str, float] = {}
        """How long the last load of a model took."""

    @property
    def client(self) -> ServerClient:
        return self._client

    def own_config(self, model: str) -> Config:
        """The model's configuration as it was found; looked up once. A model that is not loaded is loaded."""
        if model not in self._own:
            was_loaded = self._is_ready(model)
            if not was_loaded:
                self._load(model, None)
                self._touched.add(model)
            self._own[model] = OwnState(self._client.config(model, ""), was_loaded)
            self._current[model] = Setting()
        return self._own[model].config

    def use(self, model: str, setting: Setting, is_cpu_only: bool = False) -> None:
        """Has the server run the model so; nothing happens where it does already."""
        if self._current.get(model) == setting:
            return
        own = self.own_config(model)
        self._touched.add(model)
        self._current.pop(model, None)
        began = time.monotonic()
        if setting.is_default:
            self._restore(model)
        else:
            self._load(model, json.dumps(variant_config(own, setting, is_cpu_only)))
        self.reload_s[model] = time.monotonic() - began
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

    def put_back(self) -> list[str]:
        """Every model as it was found; what could not be put back, as sentences."""
        problems = []
        for model in sorted(self._touched):
            try:
                self._restore(model)
                if model in self._own and not self._own[model].was_loaded:
                    self._client.unload(model, False)
            except ClientError as error:
                problems.append(f"model '{model}' could not be put back to its own configuration: {error}")
        self._touched.clear()
        self._current.clear()
        return problems

    def put_back_all(self, models: Iterable[str]) -> None:
        """Those, whether this process knows that they were touched or not."""
        self._touched.update(models)
        self.put_back()

    def wait_for_server(self, is_ended: Callable[[], bool]) -> None:
        """Until it answers again, or nobody waits any more; raises UnreachableError where it does not."""
        for attempt in range(self._max_retries + 1):
            if is_ended():
                return
            try:
                self._client.index()
                return
            except UnreachableError:
                if attempt == self._max_retries:
                    raise
                if attempt == 0:
                    self._tell(f"the server at {self._client.place} does not answer; waiting for it")
                time.sleep(_RETRY_S)

    def _restore(self, model: str) -> None:
        """From the repository; where that is not what was found, with what was found."""
        self._load(model, None)
        own = self._own.get(model)
        if own is not None and self._client.config(model, "") != own.config:
            self._load(model, json.dumps(own.config))

    def _is_ready(self, model: str) -> bool:
        states = [entry.get("state", "") for entry in self._client.index() if entry["name"] == model]
        if not states:
            raise UnknownModelError(unknown_model(self._client, model, f"there is no model '{model}'"))
        return "READY" in states

    def _load(self, model: str, config: str | None) -> None:
        try:
            self._client.load(model, config)
        except AnswerError as error:
            if _NOT_ALLOWED in str(error):
                raise AnswerError(f"{error}{_ADVICE}") from None
            raise
