"""The response cache before a scheduler: what is one request, what is kept, what is thrown out, what is counted."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

from trireme.core.errors import InternalError, UnavailableError
from trireme.core.response import InferenceResponse
from trireme.core.tensor import Tensor
from trireme.scheduling.cache.key import request_digest
from trireme.scheduling.cache.local import CacheScope, LocalResponseCache
from trireme.scheduling.cache.local_scheduler import LocalCacheScheduler
from trireme.scheduling.cache.redis import decode_response, encode_response


def response_of(content: bytes = b"abcd", name: str = "OUT") -> InferenceResponse:
    return InferenceResponse([Tensor(name, "UINT8", (len(content),), content)])


class Cached:
    """A scheduler with one instance and the cache before it."""

    def __init__(self, bench: Any, cache: LocalResponseCache, epoch: Any = None, **batching: Any) -> None:
        self.bench = bench
        if batching:
            bench.batcher(**batching)
        else:
            bench.build()
        self.instance = bench.instance()
        self.scheduler = LocalCacheScheduler(
            bench.scheduler, cache, bench.stats, CacheScope(epoch), clock=bench.world.clock
        )

    def send(self, name: str, content: bytes = b"1", **fields: Any) -> Any:
        request = self.bench.client.request(name, **fields)
        request.inputs = {"INPUT0": Tensor("INPUT0", "UINT8", (1, len(content)), content)}
        self.scheduler.enqueue(request)
        return request

    def answers(self, name: str) -> list[bytes]:
        return [bytes(tensor.data) for answer in self.bench.client.answers[name] for tensor in answer.outputs]


@pytest.fixture
def cache() -> LocalResponseCache:
    return LocalResponseCache(1 << 20)


@pytest.fixture
def cached(bench: Any, cache: LocalResponseCache) -> Cached:
    return Cached(bench, cache)


def test_the_same_request_is_executed_once(cached: Cached) -> None:
    cached.send("first")
    cached.instance.finish([response_of(b"answer")])
    cached.send("second")
    assert cached.instance.seen == [["first"]]
    assert cached.answers("second") == [b"answer"]
    stats = cached.bench.stats.snapshot()
    assert (stats.success.count, stats.queue.count, stats.inference_count, stats.execution_count) == (2, 2, 1, 1)
    assert (stats.cache_hit.count, stats.cache_miss.count, stats.compute_infer.count) == (1, 1, 1)


def test_a_refused_request_is_as_it_came(cached: Cached) -> None:
    asyncio.run(cached.bench.scheduler.stop())
    request = cached.bench.client.request("late")
    respond = request.respond
    with pytest.raises(UnavailableError):
        cached.scheduler.enqueue(request)
    assert request.respond is respond


def test_equal_requests_at_the_same_time_are_each_executed(cached: Cached) -> None:
    cached.send("first")
    cached.send("second")
    cached.instance.finish([response_of()])
    cached.instance.finish([response_of()])
    assert cached.instance.seen == [["first"], ["second"]]
    assert cached.bench.stats.cache_miss_count == 2


@pytest.mark.parametrize(
    "change",
    [
        {"requested_outputs": ("OUT",)},
        {"parameters": {"top_k": 1}},
        {"parameters": {"top_k": "1"}},
        {"parameters": {"top_k": True}},
        {"correlation_id": 7},
        {"flags": 1},
        {"content": b"2"},
    ],
    ids=str,
)
def test_whatever_may_change_the_answer_makes_another_request(cached: Cached, change: dict[str, Any]) -> None:
    cached.send("first", parameters={"top_k": 2} if "parameters" in change else {})
    cached.instance.finish([response_of()])
    cached.send("second", **change)
    assert cached.instance.seen == [["first"], ["second"]]


def test_who_asks_and_how_urgently_makes_no_other_request(cached: Cached) -> None:
    cached.send("first")
    cached.instance.finish([response_of()])
    cached.send("second", priority=3, timeout_us=1000)
    assert cached.instance.seen == [["first"]]


def test_shape_datatype_and_name_of_an_input_belong_to_the_request(bench: Any) -> None:
    def digest(*tensors: Tensor) -> bytes:
        request = bench.client.request("r")
        request.inputs = {tensor.name: tensor for tensor in tensors}
        return request_digest(request)

    plain = Tensor("A", "INT8", (1, 4), b"abcd")
    others = [
        Tensor("A", "INT8", (2, 2), b"abcd"),
        Tensor("A", "UINT8", (1, 4), b"abcd"),
        Tensor("B", "INT8", (1, 4), b"abcd"),
    ]
    assert len({digest(tensor) for tensor in [plain, *others]}) == 4
    assert digest(plain) == digest(Tensor("A", "INT8", [1, 4], memoryview(b"abcd")))
    first, second = Tensor("A", "INT8", (1, 2), b"ab"), Tensor("B", "INT8", (1, 2), b"cd")
    assert digest(first, second) == digest(second, first)
    assert digest(first, second) != digest(Tensor("A", "INT8", (1, 2), b"cd"), Tensor("B", "INT8", (1, 2), b"ab"))


def test_an_error_is_not_kept(cached: Cached) -> None:
    cached.send("first")
    cached.instance.finish([InferenceResponse.of_error(InternalError("broken"))])
    cached.send("second")
    assert cached.instance.seen == [["first"], ["second"]]


def test_a_request_that_fails_is_counted_as_a_failure_and_not_as_a_miss(cached: Cached) -> None:
    cached.send("a")
    cached.instance.finish([InferenceResponse.of_error(InternalError("no"))])
    cached.send("b")
    cached.instance.finish([response_of()])
    cached.send("c")
    stats = cached.bench.stats.snapshot()
    assert (stats.success.count, stats.fail.count) == (2, 1)
    assert (stats.cache_hit.count, stats.cache_miss.count) == (1, 1), "hits and misses are the successes"


def test_an_answer_that_cannot_be_kept_is_given_all_the_same(cached: Cached, caplog: pytest.LogCaptureFixture) -> None:
    gone = memoryview(b"answer")
    gone.release()
    answer = InferenceResponse([Tensor("OUT", "UINT8", (6,), gone)])
    cached.send("only")
    cached.instance.finish([answer])
    assert cached.bench.client.answers["only"] == [answer]
    assert "the response cache failed to keep a response" in caplog.text


def test_a_kept_answer_has_content_of_its_own(cached: Cached) -> None:
    lent = bytearray(b"lent")
    cached.send("first")
    cached.instance.finish([InferenceResponse([Tensor("OUT", "UINT8", [4], memoryview(lent))])])
    lent[:] = b"gone"
    cached.send("second")
    cached.bench.client.answers["second"][0].outputs.clear()
    cached.send("third")
    assert cached.answers("third") == [b"lent"]


def test_what_was_not_used_for_the_longest_time_is_thrown_out() -> None:
    cache, scope = LocalResponseCache(3 * 1100), CacheScope()
    keys = [scope.key(bytes([number])) for number in range(4)]
    for key in keys[:3]:
        cache.insert(key, response_of(bytes(300)))
    assert cache.lookup(keys[0]) is not None
    cache.insert(keys[3], response_of(bytes(300)))
    assert [cache.lookup(key) is not None for key in keys] == [True, False, True, True]
    assert cache.stats.eviction_count == 1
    assert cache.stats.entry_count == 3
    assert cache.stats.used_bytes <= 3 * 1100


def test_an_answer_larger_than_the_cache_throws_nothing_out() -> None:
    cache, scope = LocalResponseCache(2000), CacheScope()
    cache.insert(scope.key(b"small"), response_of())
    cache.insert(scope.key(b"large"), response_of(bytes(3000)))
    assert cache.lookup(scope.key(b"small")) is not None
    assert cache.lookup(scope.key(b"large")) is None


def test_two_copies_of_a_model_share_nothing(new_bench: Any, cache: LocalResponseCache) -> None:
    old, new = Cached(new_bench(), cache), Cached(new_bench(), cache)
    old.send("before")
    old.instance.finish([response_of(b"old")])
    new.send("after")
    assert new.instance.seen == [["after"]]


def test_an_unloaded_model_leaves_nothing_behind(new_bench: Any, cache: LocalResponseCache) -> None:
    gone, kept = Cached(new_bench(), cache), Cached(new_bench(), cache)
    for model in (gone, kept):
        model.send("a")
        model.instance.finish([response_of()])
    asyncio.run(gone.scheduler.stop())
    assert cache.stats.entry_count == 1
    kept.send("again")
    assert kept.instance.seen == [["a"]]


def test_what_ends_after_the_unload_is_not_kept(cached: Cached, cache: LocalResponseCache) -> None:
    async def unload_while_running() -> None:
        cached.send("late")
        stopping = asyncio.create_task(cached.scheduler.stop())
        await asyncio.sleep(0)
        cached.instance.finish([response_of()])
        await stopping

    asyncio.run(unload_while_running())
    assert cached.answers("late") == [b"abcd"]
    assert cache.stats.entry_count == 0


def test_an_ensemble_forgets_when_a_model_comes_or_goes(bench: Any, cache: LocalResponseCache) -> None:
    epoch = [1]
    cached = Cached(bench, cache, epoch=lambda: epoch[0])
    cached.send("first")
    epoch[0] = 2
    cached.instance.finish([response_of()])
    cached.send("second")
    assert cached.instance.seen == [["first"], ["second"]]


def test_a_hit_waits_for_its_turn_where_the_order_is_preserved(bench: Any, cache: LocalResponseCache) -> None:
    cached = Cached(bench, cache, preserve_ordering=True)
    cached.send("warm", b"known")
    cached.instance.finish([response_of()])
    cached.send("slow", b"new")
    cached.send("hit", b"known")
    assert bench.client.order == ["warm"]
    cached.instance.finish([response_of()])
    assert bench.client.order == ["warm", "slow", "hit"]


def test_a_request_cancelled_before_is_no_lookup(cached: Cached, cache: LocalResponseCache) -> None:
    cached.send("gone", is_cancelled=True)
    assert cached.bench.client.error("gone").kind.label == "Cancelled"
    assert cache.stats.lookup_count == 0


def test_a_response_survives_the_way_through_redis() -> None:
    outputs = [Tensor("A", "FP32", [1, 2], b"12345678"), Tensor("B", "BYTES", (0,), b"")]
    sent = InferenceResponse(outputs, None, {"sequence_id": 3, "text": "ü", "is": True, "x": 0.5})
    received = decode_response(encode_response(sent)).response()
    assert [(t.name, t.datatype, list(t.shape), bytes(t.data)) for t in received.outputs] == [
        ("A", "FP32", [1, 2], b"12345678"),
        ("B", "BYTES", [0], b""),
    ]
    assert received.parameters == sent.parameters


@pytest.mark.parametrize("content", [b"", b"abc", b"\xff\xff\xff\xff{}", encode_response(response_of())[:-1]])
def test_what_is_no_response_is_told_apart(content: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, struct.error)):
        decode_response(content)
