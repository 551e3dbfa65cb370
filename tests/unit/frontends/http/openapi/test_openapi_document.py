"""The description of the API: all routes, no others, and whole in itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trireme.core.batch import BatchTiming
from trireme.core.request import InferenceRequest
from trireme.frontends.http.endpoints.metadata import _snapshot
from trireme.frontends.http.frontend import all_routes
from trireme.frontends.http.openapi.document import describe, operation_of
from trireme.frontends.http.openapi.operations import OPERATIONS
from trireme.frontends.http.openapi.paths import templates
from trireme.frontends.http.options import HttpFrontendOptions
from trireme.frontends.http.routing import Route
from trireme.observe.stats import ModelStats


@pytest.fixture
def routes(server: Any) -> list[Route]:
    return all_routes(server, HttpFrontendOptions())


def test_what_is_optional_makes_two_paths() -> None:
    pattern = "/v2/models/(?P<model>[^/]+)(?:/versions/(?P<version>[0-9]+))?/infer"
    assert templates(pattern) == ["/v2/models/{model}/versions/{version}/infer", "/v2/models/{model}/infer"]
    assert templates("/v2/repository(?:/[^/]+)?/index") == ["/v2/repository/index"]
    assert templates("/(?P<kind>a|b)x(?:/(?P<name>[^/]+))?") == ["/ax/{name}", "/bx/{name}", "/ax", "/bx"]


def test_every_route_is_described_with_each_of_its_methods(routes: list[Route]) -> None:
    for route in routes:
        for method in route.endpoints:
            found = [operation_of(method, template) for template in templates(route.pattern.pattern)]
            assert any(found), (method, route.pattern.pattern)


def test_nothing_is_described_that_is_not_there(routes: list[Route]) -> None:
    there = {
        (method, template.replace("/versions/{version}", ""))
        for route in routes
        for template in templates(route.pattern.pattern)
        for method in route.endpoints
    }
    assert OPERATIONS.keys() - there == set()


def test_every_schema_is_defined_and_used(routes: list[Route]) -> None:
    document = describe(routes, "1")
    used = {
        value.rpartition("/")[2]
        for value in _values(document)
        if isinstance(value, str) and value.startswith("#/components/schemas/")
    }
    assert used == document["components"]["schemas"].keys()
    json.dumps(document)


def test_every_parameter_of_a_path_is_described(routes: list[Route]) -> None:
    for path, item in describe(routes, "1")["paths"].items():
        for operation in item.values():
            named = {entry["name"] for entry in operation.get("parameters", [])}
            assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}, path


def test_stream_is_described_as_one(routes: list[Route]) -> None:
    operation = describe(routes, "1")["paths"]["/v2/models/{model}/generate_stream"]["post"]
    assert list(operation["responses"]["200"]["content"]) == ["text/event-stream"]


def test_statistics_are_described_as_they_are_answered(routes: list[Route]) -> None:
    described = describe(routes, "1")["components"]["schemas"]["ModelStatistics"]["properties"]
    stats = ModelStats("m", 1)
    stats.record_batch([InferenceRequest("m", "", "", {}, lambda response: None)], 1, 2, 3, BatchTiming(1, 1, 1))
    answered = _snapshot(stats.snapshot())
    assert answered.keys() - described.keys() == set()
    (batch,) = answered["batch_stats"]
    assert batch.keys() == described["batch_stats"]["items"]["properties"].keys()


def _values(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [found for inner in value.values() for found in _values(inner)]
    if isinstance(value, list):
        return [found for inner in value for found in _values(inner)]
    return [value]


def test_tags_are_all_named_and_what_is_looked_for_most_stands_first(routes: list[Route]) -> None:
    document = describe(routes, "1")
    named = [tag["name"] for tag in document["tags"]]
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    assert sorted(named) == sorted({tag for operation in operations for tag in operation["tags"]})
    assert named[:2] == ["inference", "openai"]
