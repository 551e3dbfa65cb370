"""What crosses between the server and a worker process: tuples of plain values, the first of them a kind.

A frame is a 4-byte little-endian length and the tuple in Python's marshal format (version 4): in the standard library,
written in C, and understood by whatever interpreter a model's environment brings. Only complete frames are decoded.

Shapes of the values inside messages:

    tensor    (name, datatype, shape, data)       data: bytes, or a block (segment id, offset, size) in shared memory
    request   (key, id, tensors, requested output names, correlation id, flags, timeout_us, parameters, trace context)
    response  (tensors, error, parameters)        error: None or (ErrorKind number, message)

`key` names a request between the two sides until its final response; `batch`, `call` and `token` are numbers chosen by
whoever asks. Both ends are ours and of one version, so messages carry no version of their own.
"""

from __future__ import annotations

import marshal
import struct
from typing import Any

LENGTH = struct.Struct("<I")
MARSHAL_VERSION = 4
INLINE_LIMIT_BYTES = 32 * 1024
"""Tensors up to this size travel inside the message; larger ones through shared memory."""

# To the worker.
CONFIGURE = 1  # (kind, settings dict): what to load; always first
AUTO_COMPLETE = 2  # (kind, config JSON) -> COMPLETED | FAILED
INITIALIZE = 3  # (kind, args dict) -> READY | FAILED
EXECUTE = 4  # (kind, batch, [request]) -> RESULTS, and RESPONSE before or after it
CANCEL = 5  # (kind, key)
CHECK_READY = 6  # (kind, token) -> READINESS
FINALIZE = 7  # (kind,) -> FINALIZED, then the worker exits
CALL_RESPONSE = 8  # (kind, call, response or None, is_final): an answer to a CALL
CONTROL_RESULT = 9  # (kind, token, value, error): an answer to CONTROL or METRIC
LOG_LEVEL = 10  # (kind, verbose level)
TRIM = 11  # (kind,): nothing large has passed for a while; memory that is not lent may go back to the system
THREADS = 12  # (kind, count): the threads to compute with from now on, unless the model has set their number itself
FORGET = 13  # (kind, segment id): a segment of another worker, shown before, will not be spoken of again
CREDITS = 14  # (kind, key, count): so many more responses may come; a request without any has no limit
LEASE = 15  # (kind, lease): batches come of another process until it is gone, on sockets that come on the side socket

# From the worker.
COMPLETED = 32  # (kind, config JSON)
READY = 33  # (kind, facts dict): is_async, has_is_ready, devices
FAILED = 34  # (kind, ErrorKind number, message, traceback text)
RESULTS = 35  # (kind, batch, [response or None], error or None, compute_input_ns, compute_infer_ns, compute_output_ns)
RESPONSE = 36  # (kind, key, response or None, is_final)
READINESS = 37  # (kind, token, is_ready, reason)
FINALIZED = 38  # (kind,)
CALL = (
    39  # (kind, call, model name, version, request, is_decoupled, monotonic ns): a request to another model, and when
    # it was made; parent key in request[0]
)
CALL_CANCEL = 40  # (kind, call)
CONTROL = 41  # (kind, token, operation, arguments tuple): load, unload, is_model_ready
METRIC = 42  # (kind, token, operation, arguments tuple): answered by CONTROL_RESULT unless token is 0
LOG = 43  # (kind, level letter, file name, line, message): through pb_utils.Logger
RESCHEDULE = 44  # (kind, key): the request is to run again; before its batch's RESULTS
MEASURED = 45  # (kind, key, {name: (count, ns)}): what the model has measured of a request; before its final response
CHILDREN = 46  # (kind,): where children hand over their sockets; its descriptor comes on the side socket
RETURNED = 47  # (kind,): the process that batches came of is gone, and what it asked for is done

# Both ways.
SEGMENT = 64  # (kind, segment id, size_bytes): its descriptor comes on the side socket
RELEASE = 65  # (kind, [(segment id, offset)]): blocks of the other side that are no longer looked at

# Inside the worker, where it does not cross.
LEASE_LOST = 96  # (kind,): behind the last batch of a process that is gone

LEASE_BITS = 48
"""Numbers of batches, requests and segments of a lease begin at that of the lease, shifted by so many bits; those of
the server, which numbers its leases from 1, are below all of them."""


def encode(message: tuple[Any, ...]) -> bytes:
    """The frame of a message."""
    body = marshal.dumps(message, MARSHAL_VERSION)
    return LENGTH.pack(len(body)) + body


def decode(body: bytes | memoryview) -> tuple[Any, ...]:
    """The message of one complete frame, without its length."""
    message: tuple[Any, ...] = marshal.loads(body)
    return message
