"""Any gRPC method: messages as they are given, any number of them in a request and in its answer."""

from __future__ import annotations

import base64
import binascii
import struct
import subprocess
from typing import Any, Final

from trireme.tools.perf.bounded_files import MOST_BYTES
from trireme.tools.perf.control.connect import server_address
from trireme.tools.perf.data.batches import RequestContent, RequestInput
from trireme.tools.perf.data.json_files import read_json, timestamp_ms
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.load.building import LoadRecipe
from trireme.tools.perf.options import PerfOptions
from trireme.tools.perf.preparation import PreparedLoad, server_endpoint
from trireme.tools.perf.wire import answers
from trireme.tools.perf.wire.grpc_headers import call_headers
from trireme.tools.perf.wire.grpc_requests import frame

_COMMAND: Final = "message_generator"
_GIVEN: Final = "messages"
_LENGTH: Final = struct.Struct("<I")
"""In front of each message that a command writes."""
_PIECE_BYTES: Final = 1 << 20


class _MessagesForm:
    """The messages of one request, which are sent together."""

    __slots__ = ("plain",)

    def __init__(self, messages: list[bytes], encoding: str | None) -> None:
        self.plain = b"".join(frame(message, encoding) for message in messages)

    def in_sequence(self, sequence_id: int, is_start: bool, is_end: bool) -> bytes:
        """Such services have no sequences of ours."""
        return self.plain


def prepare_messages(options: PerfOptions) -> PreparedLoad:
    """The messages of --input-data, an entry for each request; raises PerfError."""
    contents, forms = [], []
    for path in options.inputs.sources:
        for number, entry in enumerate(read_json(path)["data"]):
            place = f"'{path}', entry {number}"
            name, messages = _messages(entry, place)
            described = RequestInput(name, "BYTES", (len(messages),), b"")
            contents.append(RequestContent((described,), (), timestamp_ms(entry, place), b""))
            forms.append(_MessagesForm(messages, options.grpc_compression))
    print(f" Successfully read data for 1 stream/streams with {len(contents)} step/steps.")
    address = server_address(options)
    service, _, method = options.grpc_method.rpartition("/")
    recipe = LoadRecipe(
        options=options,
        endpoint=server_endpoint(options, address),
        streams=[forms],
        kind=answers.MESSAGES,
        headers=call_headers(
            method,
            address.authority,
            is_tls=address.is_tls,
            encoding=options.grpc_compression,
            extra=options.headers,
            service=service,
        ),
        keeps_bodies=options.report.profile_file is not None,
    )
    return PreparedLoad(recipe, tuple(contents))


def _messages(entry: Any, place: str) -> tuple[str, list[bytes]]:
    """What an entry says, under which name."""
    if isinstance(entry, dict) and isinstance(entry.get(_COMMAND), str):
        return _COMMAND, _cut(_output(entry[_COMMAND], place), place)
    given = entry.get(_GIVEN) if isinstance(entry, dict) else None
    if not isinstance(given, list) or not given:
        raise PerfError(f'{place}: there is no "{_COMMAND}" with a command that writes messages, and no "{_GIVEN}"')
    return _GIVEN, [_decoded(value, place) for value in given]


def _decoded(value: Any, place: str) -> bytes:
    text = value.get("b64") if isinstance(value, dict) else None
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except binascii.Error:
        pass
    raise PerfError(f'{place}: a message is {{"b64": ...}} with base64')


def _output(command: str, place: str) -> bytes:
    """What a command of the user's own file writes, as a shell runs it."""
    with subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        written = bytearray()
        try:
            while len(written) <= MOST_BYTES and (piece := process.stdout.read(_PIECE_BYTES)):
                written += piece
            if len(written) > MOST_BYTES:
                raise PerfError(f"{place}: '{command}' writes more than {MOST_BYTES >> 20} MiB")
        except BaseException:  # Ctrl+C as well
            process.kill()
            raise
    if process.returncode:
        raise PerfError(f"{place}: '{command}' ended with exit code {process.returncode}")
    return bytes(written)


def _cut(written: bytes, place: str) -> list[bytes]:
    messages, position = [], 0
    while position < len(written):
        head = written[position : position + _LENGTH.size]
        start = position + _LENGTH.size
        position = start + (_LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else len(written))
        if position > len(written):
            raise PerfError(
                f"{place}: what the command writes ends inside a message: each is its length, four bytes with the "
                "lowest first, and then itself"
            )
        messages.append(written[start:position])
    if not messages:
        raise PerfError(f"{place}: the command writes no message")
    return messages
