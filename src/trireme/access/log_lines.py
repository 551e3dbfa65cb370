"""The lines of the access log: JSON for programs, the common log format for tools that know it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Final

from trireme.access.tracked_request import AccessRecord

Line = Callable[[AccessRecord], bytes]
_ESCAPES: Final = {
    **{code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))},
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}
_HTTP_STATUS: Final = {0: 200, 1: 499, 3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429, 12: 501, 14: 503, 16: 401}
"""What tools that know HTTP alone are told for a gRPC status; 500 for the rest."""
_CLIENT_LEFT: Final = 499
"""The number that other servers write for a client that left before its answer began."""


def json_line(record: AccessRecord) -> bytes:
    """One object; what is beyond ASCII is escaped, so nothing a client sends can end the line or move the cursor."""
    fields = {
        "time": _iso_time(record.time_s),
        "peer": record.peer,
        "key": record.key,
        "protocol": record.target.protocol,
        "method": record.target.method,
        "path": record.target.path,
        "group": record.target.group,
        "model": record.model,
        "status": record.status,
        "received_bytes": record.received_bytes,
        "sent_bytes": record.sent_bytes,
        "duration_us": record.duration_ns // 1000,
        "requests": record.request_count,
        "cut_off": record.is_cut_off,
    }
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def common_line(record: AccessRecord) -> bytes:
    """`host - key [time] "request" status bytes`, and behind it the model, the request's bytes and the seconds."""
    moment = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(record.time_s))
    target = record.target
    version = "HTTP/1.1" if target.protocol == "HTTP" else "HTTP/2.0"
    status = (record.status or _CLIENT_LEFT) if target.protocol == "HTTP" else _HTTP_STATUS.get(record.status, 500)
    request = f"{target.method} {_escaped(target.path)} {version}"
    line = (
        f'{record.peer} - {record.key} [{moment}] "{request}" {status} {record.sent_bytes} '
        f'"{_escaped(record.model) or "-"}" {record.received_bytes} {record.duration_ns / 1e9:.6f}\n'
    )
    return line.encode("utf-8", "backslashreplace")


FORMATS: Final[dict[str, Line]] = {"json": json_line, "common": common_line}


def _iso_time(time_s: float) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(time_s))}.{int(time_s % 1 * 1e6):06d}Z"


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)
