"""Operations on related names wait for each other; others do not."""

from __future__ import annotations

import asyncio

from trireme.registry.loading.related_names import RelatedNames


def test_shared_names_are_held_one_after_the_other() -> None:
    async def scenario() -> None:
        related = RelatedNames()
        order: list[str] = []

        async def work(name: str, names: set[str], turns: int) -> None:
            async with related.hold(names):
                order.append(f"{name} in")
                for _ in range(turns):
                    await asyncio.sleep(0)
                order.append(f"{name} out")

        await asyncio.gather(work("first", {"a", "b"}, 9), work("second", {"b", "c"}, 1), work("other", {"d"}, 1))
        assert order.index("first out") < order.index("second in")
        assert order.index("other out") < order.index("first out")

    asyncio.run(scenario())


def test_nobody_overtakes_those_who_wait_for_the_same_name() -> None:
    async def scenario() -> None:
        related = RelatedNames()
        order: list[int] = []

        async def work(number: int, names: set[str]) -> None:
            async with related.hold(names):
                order.append(number)
                await asyncio.sleep(0)

        await asyncio.gather(work(1, {"a"}), work(2, {"a", "b"}), work(3, {"b"}), work(4, {"b", "c"}))
        assert order == [1, 2, 3, 4]

    asyncio.run(scenario())


def test_cancelled_waiter_lets_the_next_one_in() -> None:
    async def scenario() -> None:
        related = RelatedNames()
        entered = asyncio.Event()

        async def work(names: set[str]) -> None:
            async with related.hold(names):
                entered.set()

        async with related.hold({"a"}):
            waiter = asyncio.create_task(work({"a", "b"}))
            await asyncio.sleep(0)
            behind = asyncio.create_task(work({"b"}))
            await asyncio.sleep(0)
            assert not entered.is_set()
            waiter.cancel()
            await asyncio.wait([waiter, behind])
            assert entered.is_set()
        async with asyncio.timeout(1), related.hold({"a", "b"}):
            pass

    asyncio.run(scenario())
