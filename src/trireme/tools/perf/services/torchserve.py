"""TorchServe: the contents of files, each a prediction."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from trireme.tools.perf.bounded_files import read_bounded
from trireme.tools.perf.control.connect import server_address
from trireme.tools.perf.data.batches import RequestContent, RequestInput
from trireme.tools.perf.data.json_files import read_json, timestamp_ms
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.load.building import LoadRecipe
from trireme.tools.perf.options import PerfOptions
from trireme.tools.perf.preparation import PreparedLoad, server_endpoint
from trireme.tools.perf.wire import answers
from trireme.tools.perf.wire.http_requests import HttpFormDataForm, post_head

INPUT: Final = "TORCHSERVE_INPUT"
_FIELD: Final = "data"
"""The name under which handlers of TorchServe look for what was sent."""


def prepare_files(options: PerfOptions) -> PreparedLoad:
    """The files that --input-data names; raises PerfError."""
    contents = [_content(path, number, entry) for path in options.inputs.sources for number, entry in _entries(path)]
    print(f" Successfully read data for 1 stream/streams with {len(contents)} step/steps.")
    address = server_address(options)
    version = f"/{quote(options.model_version, safe='')}" if options.model_version else ""
    path = f"/predictions/{quote(options.model_name, safe='')}{version}"
    head = post_head(address.base + path, address.authority, options.headers)
    forms = [HttpFormDataForm(head, _FIELD, content.payload or b"") for content in contents]
    recipe = LoadRecipe(
        options=options,
        endpoint=server_endpoint(options, address),
        streams=[forms],
        kind=answers.TEXT,
        keeps_bodies=options.report.profile_file is not None,
    )
    return PreparedLoad(recipe, tuple(contents))


def _entries(path: str) -> list[tuple[int, Any]]:
    entries: list[Any] = []
    for entry in read_json(path)["data"]:
        entries += entry if isinstance(entry, list) else [entry]
    return list(enumerate(entries))


def _content(path: str, number: int, entry: Any) -> RequestContent:
    place = f"'{path}', entry {number}"
    given = entry.get(INPUT) if isinstance(entry, dict) else None
    name = given[0] if isinstance(given, list) and given else given
    if not isinstance(name, str):
        raise PerfError(f'{place}: there is no "{INPUT}" with the path of a file')
    try:
        data = read_bounded(name)
    except OSError as error:
        raise PerfError(f"{place}: failed to read '{name}': {error.strerror}") from None
    return RequestContent((RequestInput(INPUT, "BYTES", (1,), b""),), (), timestamp_ms(entry, place), data)
