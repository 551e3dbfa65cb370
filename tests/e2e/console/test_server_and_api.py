"""The pages about the server and its API, and the description of the API held against the server."""

from __future__ import annotations

import json
from typing import Any

from browser import Page
from console_address import console_of
from running_server import RunningServer


def test_server_page_shows_versions_flags_limits_and_log(page: Page, server: RunningServer) -> None:
    page.go(console_of(server, "server"))
    page.until_text("Flags in force")
    page.until_text("--model-control-mode")
    said = page.text()
    assert "Triton protocol" in said
    assert "Connections" in said
    page.until_text("Started HTTPService")


def test_api_page_shows_every_path(page: Page, server: RunningServer) -> None:
    page.go(console_of(server, "api"))
    page.until_text("/v2/models/{model}/infer")
    document = description(server)
    count = sum(len(item) for item in document["paths"].values())
    assert page.run("document.querySelectorAll('details.entry').length") == count
    page.run("for (const entry of document.querySelectorAll('details')) entry.open = true")
    page.until_text("The message.")
    page.until_text("inputs[].datatype")  # what is inside a field is shown, too
    page.until_text("choices[].message.content")


def test_answers_have_what_the_description_promises(server: RunningServer) -> None:
    document = description(server)
    asked = 0
    for path, item in document["paths"].items():
        operation = item.get("get")
        if operation is None or "{region}" in path or "cuda" in path:
            continue
        address = path.replace("{model}", "scribe").replace("{version}", "1")
        status, _, body = server.ask("GET", address)
        assert status == 200, (address, body)
        asked += 1
        if "content" in operation["responses"]["200"]:
            schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
            check(document, schema, json.loads(body), address)
    assert asked > 12
    status, _, body = server.ask("POST", "/v2/repository/index")
    check(document, {"$ref": "#/components/schemas/Index"}, json.loads(body), "index")


def test_descriptions_have_their_code_as_code(page: Page, server: RunningServer) -> None:
    assert "`" in json.dumps(description(server))
    page.go(console_of(server, "api"))
    page.until_text("/v2/models/{model}/infer")
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert "`" not in page.text()
    assert page.run("document.querySelectorAll('details.entry td code, details.entry p code').length") > 0


def description(server: RunningServer) -> dict[str, Any]:
    status, _, body = server.ask("GET", "/openapi.json")
    assert status == 200
    return dict(json.loads(body))


def check(document: dict[str, Any], schema: dict[str, Any], value: Any, place: str) -> None:
    """The value has the schema's type, and what it requires."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), (place, schema, value)
    for name in schema.get("required", []):
        assert name in value, (place, name)
    for name, inner in schema.get("properties", {}).items():
        if isinstance(value, dict) and name in value:
            check(document, inner, value[name], f"{place}.{name}")
    if isinstance(value, list):
        for entry in value:
            check(document, schema.get("items", {}), entry, f"{place}[]")
