"""Loads of OpenAI's endpoints: bodies as they are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from trireme.tools.perf.address import Address
from trireme.tools.perf.control.connect import server_address
from trireme.tools.perf.data.batches import RequestContent
from trireme.tools.perf.data.json_files import read_json, timestamp_ms
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.load.building import LoadRecipe
from trireme.tools.perf.options import PerfOptions
from trireme.tools.perf.preparation import PreparedLoad, server_endpoint
from trireme.tools.perf.wire import answers
from trireme.tools.perf.wire.http_requests import HttpJsonForm, post_head


def prepare_payloads(options: PerfOptions) -> PreparedLoad:
    """The bodies of --input-data; raises PerfError."""
    contents = [content for path in options.inputs.sources for content in _contents(path, read_json(path)["data"])]
    return prepared_bodies(options, contents, f"/{options.endpoint.lstrip('/')}")


def prepared_bodies(options: PerfOptions, contents: Sequence[RequestContent], path: str) -> PreparedLoad:
    """A load of these bodies."""
    address: Address = server_address(options)
    head = post_head(address.base + path, address.authority, options.headers)
    forms = [HttpJsonForm(head, content.payload or b"") for content in contents]
    recipe = LoadRecipe(
        options=options,
        endpoint=server_endpoint(options, address),
        streams=[forms],
        kind=answers.EVENTS if options.is_streaming else answers.TEXT,
        keeps_bodies=options.report.profile_file is not None,
    )
    return PreparedLoad(recipe, tuple(contents))


def _contents(path: str, entries: Sequence[Any]) -> list[RequestContent]:
    contents = []
    for number, entry in enumerate(entries):
        place = f"'{path}', entry {number}"
        body = entry_body(entry, place)
        contents.append(RequestContent((), (), timestamp_ms(entry, place), orjson.dumps(body)))
    return contents


def entry_body(entry: Any, place: str) -> dict[str, Any]:
    """The body that an entry of --input-data has; raises PerfError."""
    payload = entry.get("payload") if isinstance(entry, dict) else None
    body = payload[0] if isinstance(payload, list) and payload else payload
    if not isinstance(body, dict):
        raise PerfError(f'{place}: there is no "payload" with the body of a request')
    return body
