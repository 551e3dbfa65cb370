"""What makes two requests to a model the same for the response cache: one digest of all that may change the answer."""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import Final

from trireme.core.request import InferenceRequest
from trireme.core.threads.pools import create_threads

INLINE_DIGEST_BYTES: Final = 256 << 10
"""Requests with more input are digested beside the event loop: a megabyte takes about a millisecond."""
_DIGEST_BYTES: Final = 24


def is_long_to_digest(request: InferenceRequest) -> bool:
    """Whether the digest is to be computed beside the event loop."""
    size = 0
    for tensor in request.inputs.values():
        size += len(tensor.data)
    return size > INLINE_DIGEST_BYTES


class LongDigests:
    """The digests of long requests, on threads of their own: a file system that hangs keeps those for files, and no
    cached model is to wait for it."""

    def __init__(self) -> None:
        self._threads = create_threads("digests", is_native=True)

    async def compute(self, request: InferenceRequest) -> bytes:
        """The same as `request_digest`, on another thread; the request must not change meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, request_digest, request)

    def close(self) -> None:
        """Lets the threads end with what they have begun."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def request_digest(request: InferenceRequest) -> bytes:
    """A digest of inputs (name, datatype, shape, content), requested outputs, parameters, correlation id and flags.

    Triton looks at the names and the content of inputs only, so that two shapes of the same bytes are one entry there.
    The request id, the priority and the timeout say who asks and how urgently, and are left out.
    """
    inputs = request.inputs
    names = sorted(inputs)
    head = [
        (tensor.name, tensor.datatype, tuple(tensor.shape), len(tensor.data))
        for tensor in (inputs[name] for name in names)
    ]
    parameters = sorted(request.parameters.items()) if request.parameters else ()
    # repr tells 1 from 1.0, True and "1", and quotes what could pass for a separator.
    facts = repr((head, request.requested_outputs, parameters, request.correlation_id, request.flags))
    digest = blake2b(facts.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES)
    for name in names:
        digest.update(inputs[name].data)
    return digest.digest()
