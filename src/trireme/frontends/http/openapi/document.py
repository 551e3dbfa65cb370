"""The whole description: the paths of the routes there are, with the words for each, and the schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trireme.frontends.http.openapi.operations import EVENTS, FORM, JSON, OCTETS, OPERATIONS, Operation
from trireme.frontends.http.openapi.paths import parameters, templates
from trireme.frontends.http.openapi.schemas import SCHEMAS, ref
from trireme.frontends.http.routing import Route

_FIRST: Final = ("inference", "openai", "metadata", "model-config", "statistics", "model-repository", "health")
"""What people look for, in this order; the other tags stand behind."""
_VERSION: Final = "/versions/{version}"
_PARAMETER_WORDS: Final = {
    "model": "The name of the model.",
    "version": "The number of its version.",
    "region": "The name of the region.",
}
_RAW: Final[dict[str, dict[str, Any]]] = {
    OCTETS: {"type": "string", "format": "binary", "description": "The JSON, and behind it the bytes of tensors."},
    FORM: {"type": "object", "description": "A field for each input: a file, a text, a number or a list of these."},
    EVENTS: {"type": "string", "description": "An event for each response, its data one line of JSON."},
}


def describe(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """The OpenAPI document of these routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        for template in templates(route.pattern.pattern):
            for method, endpoint in route.endpoints.items():
                operation = operation_of(method, template)
                if operation is not None:
                    described = _operation(template, operation, endpoint.category)
                    paths.setdefault(template, {})[method.lower()] = described
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "Trireme's HTTP API",
            "version": version,
            "description": "The protocol of KServe and Triton with its extensions, and the OpenAI API.",
        },
        "tags": [{"name": tag} for tag in _tags(paths)],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "With --api-keys."}},
        },
        "security": [{}, {"key": []}],
    }


def _tags(paths: Mapping[str, Mapping[str, Any]]) -> list[str]:
    used = {tag for methods in paths.values() for described in methods.values() for tag in described["tags"]}
    return [tag for tag in _FIRST if tag in used] + sorted(used.difference(_FIRST))


def operation_of(method: str, template: str) -> Operation | None:
    """The words for a path; those of a model hold for its versions too. None for a path that nobody is to use."""
    return OPERATIONS.get((method, template.replace(_VERSION, "")))


def _operation(template: str, operation: Operation, category: str) -> dict[str, Any]:
    names = parameters(template)
    described: dict[str, Any] = {"summary": operation.summary, "tags": [operation.tag or category]}
    if operation.description:
        described["description"] = operation.description
    if names:
        described["parameters"] = [
            {
                "name": name,
                "in": "path",
                "required": True,
                "description": _PARAMETER_WORDS[name],
                "schema": {"type": "integer" if name == "version" else "string"},
            }
            for name in names
        ]
    if operation.request:
        content = _content(operation.request, operation.other_requests)
        described["requestBody"] = {"content": content}
    error = "OpenAIError" if operation.is_openai else "Error"
    answered: dict[str, Any] = {"description": "Done"}
    if operation.response:
        answered["content"] = _content(operation.response, operation.other_responses, operation.response_type)
    refused = {"description": "Refused, or failed", "content": {JSON: {"schema": ref(error)}}}
    described["responses"] = {"200": answered, "default": refused}
    return described


def _content(schema: str, other_types: Sequence[str], kind: str = JSON) -> dict[str, Any]:
    return {kind: {"schema": ref(schema)}, **{kind: {"schema": _RAW[kind]} for kind in other_types}}
