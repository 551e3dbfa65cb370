"""What Python models can do, seen from outside: calls to models, model control, metrics, logs, senders, readiness."""

from __future__ import annotations

import time

import numpy as np
import pytest
from waiting import until

NOT_READY = (
    "Model {0} - Error when running inference: Failed for execute the inference request. Model '{0}' is not ready."
)


@pytest.mark.parametrize(
    ("way", "found"),
    [
        ("sync", [[1.5]]),
        ("nested", [[1.5]]),
        ("ensemble", [[2.5]]),
        ("decoupled", [[[0]], [[1]], [[2]], []]),
        ("decoupled_error", [[[0]], {"error": "1 is unlucky"}, [[2]], []]),
        ("parallel_decoupled", [[[[0]], [[1]], []], [[[0]], [[1]], [[2]], []]]),
        ("failing", {"error": "one is not found"}),
        ("unknown", {"error": NOT_READY.format("nosuch")}),
        ("unknown_decoupled", [{"error": NOT_READY.format("nosuch")}]),
        ("unknown_version", {"error": NOT_READY.format("types")}),
        ("not_loaded", {"error": NOT_READY.format("spare")}),
        ("names_in_bytes", [[1.5]]),
        ("forked", [[[0.0]], [[1.0]], [[2.0]]]),
        ("looked_into", [[[0]], [[[1]], [[2]], []], [[[0]], [[1]], [[2]], []], [[0]], [[1]]]),
        ("too_late", {"error": "Request timeout expired"}),
        ("in_time", [1]),
    ],
)
def test_a_model_calls_another(grpc_door, way, found) -> None:
    assert grpc_door.way("caller", way) == found


def test_a_model_that_calls_wrongly_learns_what_is_wrong(grpc_door) -> None:
    error = grpc_door.way("caller", "decoupled_by_mistake")["error"]
    assert "Please use 'decoupled=True' argument to the 'exec' or 'async_exec' calls for decoupled models." in error
    error = grpc_door.way("caller", "invalid")["error"]
    assert error.startswith(
        "Model types - Error when running inference: [request id: inner] unexpected shape for input"
    )


def test_calls_carry_parameters_both_ways(grpc_door) -> None:
    known, parameters, output_count = grpc_door.way("caller", "parameters")
    assert known["id"] == "inner"
    assert known["parameters"] == {"n": 1, "s": "x", "b": True}
    assert (known["correlation_id"], known["flags"], known["timeout"]) == (9, 1, 10**9)
    assert known["outputs"] == ["TEXT"]
    assert parameters == {"is_true": True, "seven": 7, "word": "ünï"}
    assert output_count == 1


def test_calls_of_one_model_overlap(grpc_door) -> None:
    seconds = []
    for _ in range(3):  # of a busy machine's attempts the quickest tells
        start = time.monotonic()
        assert grpc_door.way("caller", "parallel") == [[[1]]] * 4
        seconds.append(time.monotonic() - start)
    assert min(seconds) < 0.75, "four calls of 0.2 s went one after the other"


def test_a_model_loads_and_unloads_another(grpc_door) -> None:
    steps = grpc_door.way("extras", "control")
    assert steps[:4] == [False, True, True, False]
    assert steps[4] == "Failed to load model: failed to load 'nosuch', failed to poll from model repository"


def test_custom_metrics_are_on_the_page(server, grpc_door) -> None:
    value = grpc_door.way("extras", "metrics")
    page = server.metrics_page()
    assert "# HELP trips Trips so far" in page
    assert "# TYPE trips counter" in page
    (line,) = [line for line in page.splitlines() if line.startswith("trips{")]
    assert line.startswith('trips{model="extras"} ')
    assert float(line.split()[-1]) == value
    assert 'lengths_bucket{le="10"}' in page


def test_lines_of_the_logger_name_level_and_place(server, grpc_door) -> None:
    grpc_door.way("extras", "log")
    until(lambda: "printed by a model" in server.log and "from the south" in server.log)
    lines = server.log.splitlines()
    (warning,) = {line for line in lines if "wind from the north" in line}
    (error,) = {line for line in lines if "wind from the south" in line}
    assert warning.startswith("W")
    assert error.startswith("E")
    assert "model.py:" in warning
    assert not any("a calm" in line for line in lines)
    assert any("extras in extras_0" in line for line in lines)


def test_the_logger_follows_the_verbose_level(server, grpc_door) -> None:
    grpc_door.client.update_log_settings({"log_verbose_level": 1})
    grpc_door.way("extras", "log")
    grpc_door.client.update_log_settings({"log_verbose_level": 0})
    until(lambda: "a calm" in server.log)


def test_a_rescheduled_request_runs_again(door) -> None:
    assert door.way("extras", "reschedule", request_id=f"again-{door.name}") == 3


@pytest.mark.parametrize(("way", "text"), [("sender", "sent"), ("sender_in_two", "sent"), ("sender_twice", "first")])
def test_a_model_that_is_not_decoupled_may_use_a_sender(door, way, text) -> None:
    assert door.way("extras", way) == text


def test_of_two_responses_of_such_a_model_the_first_counts_and_the_second_is_its_error(server, grpc_door) -> None:
    """As Triton answers in a stream; its unary calls and HTTP fail, or write both into one body."""
    assert grpc_door.way("extras", "sender_with_two") == "first"
    until(lambda: "Non-decoupled model cannot send more than one response." in server.log)


def test_a_model_says_itself_whether_it_is_ready(server, door) -> None:
    assert door.client.is_model_ready("extras")
    try:
        door.way("extras", "unready")
        assert not door.client.is_model_ready("extras")
        assert not door.client.is_server_ready()
        assert door.way("extras", "place")  # inference goes on
    finally:
        door.way("extras", "ready")
    assert door.client.is_model_ready("extras")
    assert door.client.is_server_ready()


def test_a_model_knows_where_it_lives_and_is_a_process_of_its_own(server, grpc_door) -> None:
    folder, pid = grpc_door.way("extras", "place")
    assert folder == str(server.repository / "extras" / "1"), "whole, so that it is found from anywhere"
    assert pid != server.process.pid


def test_optional_inputs_may_be_missing(door) -> None:
    assert door.text("describe", {})["inputs"] == []
    assert door.text("describe", {"WAIT_S": np.array([0], dtype=np.float32)})["inputs"] == ["WAIT_S"]
