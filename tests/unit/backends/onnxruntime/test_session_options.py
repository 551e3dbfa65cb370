"""The session's options, as a configuration and the machine have them."""

from __future__ import annotations

from typing import Any

import pytest

from trireme.backends.compiled.parameters import Parameters
from trireme.backends.onnxruntime.session_options import session_options

SPIN = "session.intra_op.spin_duration_us"


def options(**parameters: str) -> Any:
    ort = pytest.importorskip("onnxruntime")
    config = {"name": "m", "parameters": {key: {"string_value": value} for key, value in parameters.items()}}
    return session_options(ort, config, Parameters(config))


def test_threads_are_the_workers_share_and_wait_awake_for_a_short_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = options()
    assert found.intra_op_num_threads == 3
    assert found.get_session_config_entry(SPIN) == "50"


def test_what_the_configuration_says_of_threads_is_done() -> None:
    found = options(**{"intra_op_thread_count": "2", SPIN: "1000", "session.intra_op.allow_spinning": "0"})
    assert found.intra_op_num_threads == 2
    assert found.get_session_config_entry(SPIN) == "1000"
    assert found.get_session_config_entry("session.intra_op.allow_spinning") == "0"
