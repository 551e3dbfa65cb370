"""Parameters that no backend has read are told of, but for those of the server."""

from __future__ import annotations

import pytest

from trireme.backends.compiled import parameters
from trireme.backends.compiled.parameters import Parameters


def test_what_the_server_reads_is_not_told_as_without_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(parameters.Logger, "log_warn", told.append)
    read = ["compat", "device", "EXECUTION_ENV_PATH", "max_concurrency", "strict_outputs", "trireme_load_timeout"]
    names = [*read, "trireme_memory_bytes", "trireme_pin", "image_input", "image_mean", "strict_outptus"]
    given = Parameters({"name": "mine", "parameters": {name: {"string_value": "1"} for name in names}})
    given.warn_of_rest("onnxruntime", {})
    assert told == ["parameter 'strict_outptus' of model 'mine' has no effect on the onnxruntime backend"]
