"""Requests that are long to read and refused, in any mixture with others: few are read, all answers in turn."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trireme.frontends.refusals import MAX_COSTLY_REFUSALS

INFER = "/v2/models/ident/infer"
GOOD = b'{"inputs":[{"name":"INPUT0","shape":[1,1],"datatype":"FP32","data":[1.5]}]}'
BAD = b'{"inputs":[' + b'{"":0},' * 700 + b"x]}"
"""Longer than what is read at once where the fast reader refuses it."""
STATUS = re.compile(rb"HTTP/1\.1 (\d+)")
EXPECTED = {"live": 200, "good": 200, "late": 200, "bad": 500}
KINDS = st.sampled_from([*EXPECTED, "bad", "bad"])
"""`late` is good and read beside the loop, `bad` is read there and refused."""


def request_of(kind: str, post: Callable[..., bytes], get: Callable[..., bytes]) -> bytes:
    if kind == "live":
        return get("/v2/health/live")
    if kind == "good":
        return post(INFER, GOOD)
    return post(INFER, gzip.compress(GOOD if kind == "late" else BAD), "Content-Encoding: gzip")


async def answers(client: Any, data: bytes, size: int) -> list[int]:
    """The statuses that come for the data, which arrives in parts of that size."""
    for start in range(0, len(data), size):
        client.feed(data[start : start + size])
        await asyncio.sleep(0)
    await client.answered()
    return [int(status) for status in STATUS.findall(client.take())]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.lists(KINDS, max_size=12) | st.lists(KINDS, min_size=30, max_size=60),
    size=st.sampled_from([700, 5000, 1 << 20]),
)
def test_a_connection_reads_few_of_them_and_answers_in_turn(
    connect: Any, post: Any, get: Any, kinds: list[str], size: int
) -> None:
    client, data = connect(), b"".join(request_of(kind, post, get) for kind in kinds)
    found = asyncio.run(answers(client, data, size))
    for place, (kind, status) in enumerate(zip(kinds, found, strict=False)):
        is_last = place == len(found) - 1  # in the place of whatever had not arrived yet when the connection ended
        assert status == EXPECTED[kind] or (status == 503 and (is_last or kind in ("late", "bad")))
    refused = found.count(500)
    if 503 in found:
        assert MAX_COSTLY_REFUSALS <= refused <= MAX_COSTLY_REFUSALS + 2, "those that two threads had begun"
        assert found[-1] == 503, "the last answer says why the connection ends"
        assert client.transport.has_written_eof
    else:
        assert found == [EXPECTED[kind] for kind in kinds]
        assert refused <= MAX_COSTLY_REFUSALS


def test_what_arrives_behind_the_last_refusal_is_not_read(connect: Any, post: Any, get: Any) -> None:
    """Half a good request is there when the connection has refused too many: the refusal stands in its place."""

    async def story() -> list[int]:
        client = connect()
        good, bad = request_of("good", post, get), request_of("bad", post, get)
        client.feed(bad * MAX_COSTLY_REFUSALS + good[:20])
        await client.answered()
        client.feed(good[20:])
        await client.answered()
        return [int(status) for status in STATUS.findall(client.take())]

    assert asyncio.run(story()) == [500] * MAX_COSTLY_REFUSALS + [503]


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kinds=st.lists(st.sampled_from(sorted(EXPECTED)), max_size=30))
def test_one_at_a_time_all_are_read(connect: Any, post: Any, get: Any, kinds: list[str]) -> None:
    async def in_turn() -> list[list[int]]:
        client = connect()
        return [await answers(client, request_of(kind, post, get), 1 << 20) for kind in kinds]

    kinds = ["bad"] * (MAX_COSTLY_REFUSALS + 1) + kinds
    assert asyncio.run(in_turn()) == [[EXPECTED[kind]] for kind in kinds]
