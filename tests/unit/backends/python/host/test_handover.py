"""Memory of one worker that another one looks at, with the test as both workers' ends."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from waiting import until_on_loop

from trireme.backends.python.channel import messages
from trireme.backends.python.channel.arena import Arena, Attachments
from trireme.backends.python.host.link import HostLink
from trireme.backends.python.host.tensor_messages import borrow, lend, take_back
from trireme.core.tensor import HandedTensor, Tensor

CONTENT = bytes(range(256)) * 400


class Worker:
    """A worker's end: lends blocks and attaches what it is shown."""

    def __init__(self) -> None:
        ours, self.sock = socket.socketpair()
        our_side, self.side = socket.socketpair()
        self.link = HostLink(asyncio.get_running_loop(), ours, our_side, {}, print)
        self.arena = Arena(self._announce)
        self.attachments = Attachments()

    def read_message(self) -> tuple[Any, ...]:
        head = self.sock.recv(4, socket.MSG_WAITALL)
        message = messages.decode(self.sock.recv(messages.LENGTH.unpack(head)[0], socket.MSG_WAITALL))
        if message[0] == messages.SEGMENT:
            descriptors = socket.recv_fds(self.side, 1, 1)[1]
            self.attachments.attach(message[1], descriptors[0], message[2])
        return message

    def read_kinds(self) -> list[int]:
        """The kinds of all messages there are at present."""
        self.link.send((messages.CHECK_READY, 0))
        kinds = []
        while (kind := self.read_message()[0]) != messages.CHECK_READY:
            kinds.append(kind)
        return kinds

    def give_back(self) -> None:
        self.sock.sendall(messages.encode((messages.RELEASE, self.attachments.take_released())))

    async def lend_to_server(self) -> HandedTensor:
        block = self.arena.place(CONTENT)
        await until_on_loop(lambda: bool(self.link.attachments._maps))
        [tensor] = borrow([("OUT", "UINT8", (len(CONTENT),), block)], self.link)
        assert isinstance(tensor, HandedTensor)
        return tensor

    def close(self) -> None:
        self.link.close()
        self.sock.close()
        self.side.close()
        self.arena.close()

    def _announce(self, segment_id: int, fd: int, size: int) -> None:
        socket.send_fds(self.side, [b"\0"], [fd])
        self.sock.sendall(messages.encode((messages.SEGMENT, segment_id, size)))


def with_workers(test: Callable[[Worker, Worker], Awaitable[None]]) -> None:
    async def run() -> None:
        giver, taker = Worker(), Worker()
        try:
            await test(giver, taker)
        finally:
            giver.close()
            taker.close()

    asyncio.run(run())


def open_descriptors() -> set[str]:
    """What this process has open, but for what a thread that watches the processor time reads of the system."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile, as what has listed them is
            found.add(f"{name}: {os.readlink(f'/proc/self/fd/{name}')}")
    return {descriptor for descriptor in found if ": /proc" not in descriptor}


def test_the_second_worker_reads_what_the_first_one_wrote_without_a_copy() -> None:
    async def test(giver: Worker, taker: Worker) -> None:
        tensor = await giver.lend_to_server()
        [(_, _, _, block)] = lend([tensor], taker.link)
        taker.link.send((messages.EXECUTE, 1, []))
        assert [taker.read_message()[0] for _ in range(2)] == [messages.SEGMENT, messages.EXECUTE]
        array = taker.attachments.array(block, "u1", (len(CONTENT),))  # type: ignore[arg-type]
        assert array.tobytes() == CONTENT
        array[0] = 77
        assert tensor.data[0] == 77  # the same memory
        assert taker.link.arena.used_bytes == 0

    with_workers(test)


def test_the_block_goes_back_when_the_second_worker_and_the_server_are_done_with_it() -> None:
    async def test(giver: Worker, taker: Worker) -> None:
        tensor = await giver.lend_to_server()
        [(_, _, _, block)] = lend([tensor], taker.link)
        assert taker.read_kinds() == [messages.SEGMENT]
        view = taker.attachments.view(block)
        del tensor
        assert giver.read_kinds() == []
        del view
        taker.give_back()
        await until_on_loop(lambda: giver.link.attachments.has_released)
        assert giver.read_kinds() == [messages.RELEASE]

    with_workers(test)


def test_a_segment_is_introduced_once_and_forgotten_with_its_worker() -> None:
    async def test(giver: Worker, taker: Worker) -> None:
        first, second = await giver.lend_to_server(), await giver.lend_to_server()
        blocks = [lent[3] for lent in lend([first, second], taker.link)]
        assert taker.read_kinds() == [messages.SEGMENT]
        giver.link.close()
        for block in blocks:
            taker.attachments.view(block)
        taker.give_back()
        await until_on_loop(lambda: not taker.link.handover._shown)
        assert taker.read_kinds() == []
        del first, second
        gc.collect()
        await asyncio.sleep(0)
        assert taker.read_kinds() == [messages.FORGET]

    with_workers(test)


def test_descriptors_do_not_stay_behind() -> None:
    async def test(giver: Worker, taker: Worker) -> None:
        gc.collect()
        before = open_descriptors()
        third = Worker()
        tensor = await third.lend_to_server()
        lend([tensor], taker.link)
        third.close()
        taker.read_kinds()
        taker.attachments.detach(-1)
        taker.link.handover.close()
        del tensor, third
        gc.collect()
        assert open_descriptors() == before

    with_workers(test)


def test_memory_that_the_worker_still_has_is_copied_the_second_time() -> None:
    async def test(giver: Worker, taker: Worker) -> None:
        tensor = await giver.lend_to_server()
        [shown, copied] = [lend([tensor], taker.link)[0][3] for _ in range(2)]
        assert shown[0] < 0 < copied[0]

    with_workers(test)


def test_only_what_is_nobody_elses_is_handed_over() -> None:
    async def test(giver: Worker, taker: Worker) -> None:
        tensor = await giver.lend_to_server()
        plain = Tensor("IN", "UINT8", tensor.shape, tensor.data)
        assert lend([plain], taker.link)[0][3][0] > 0
        assert lend([tensor], taker.link, can_hand_over=False)[0][3][0] > 0

    with_workers(test)


def test_what_was_never_sent_is_taken_back() -> None:
    async def test(giver: Worker, taker: Worker) -> None:
        tensor = await giver.lend_to_server()
        lent = lend([tensor, Tensor("IN", "UINT8", (len(CONTENT),), CONTENT)], taker.link)
        take_back(lent, taker.link)
        assert not taker.link.handover._shown
        assert taker.link.arena.used_bytes == 0

    with_workers(test)
