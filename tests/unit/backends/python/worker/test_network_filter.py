"""The filter that keeps workers from the network, run by hand: what passes, on every machine that it knows."""

from __future__ import annotations

import errno

import pytest

from trireme.backends.python.worker.network_filter import Step, filter_program

X86, ARM, I386 = 0xC000003E, 0xC00000B7, 0x40000003
SOCKET = {X86: 41, ARM: 198}
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EACCES


def run(steps: list[Step], machine: int, number: int, argument: int = 0) -> int:
    """As the kernel runs it."""
    data = {0: number, 4: machine, 16: argument}
    register = position = 0
    while True:
        code, if_true, if_false, value = steps[position]
        position += 1
        if code == 0x20:
            register = data[value]
        elif code == 0x15:
            position += if_true if register == value else if_false
        elif code == 0x35:
            position += if_true if register >= value else if_false
        else:
            assert code == 0x06
            return value


@pytest.mark.parametrize("machine", [X86, ARM])
def test_sockets_of_the_machine_pass_and_others_do_not(machine: int) -> None:
    steps = filter_program(machine, SOCKET[machine])
    results = {family: run(steps, machine, SOCKET[machine], family) for family in (1, 2, 10, 16, 17, 40)}
    assert results == {1: ALLOW, 2: REFUSE, 10: REFUSE, 16: REFUSE, 17: REFUSE, 40: REFUSE}


@pytest.mark.parametrize("machine", [X86, ARM])
def test_other_calls_pass_whatever_their_arguments(machine: int) -> None:
    steps = filter_program(machine, SOCKET[machine])
    passing = [number for number in range(600) if run(steps, machine, number, 2) == ALLOW]
    assert set(range(600)) - set(passing) == {SOCKET[machine], 425}


def test_the_ways_around_are_closed() -> None:
    steps = filter_program(X86, SOCKET[X86])
    assert run(steps, X86, 425) == REFUSE, "a ring of requests makes sockets without the call"
    assert run(steps, X86, 0x40000000 | 41, 2) == REFUSE, "x32 has numbers of its own"
    assert run(steps, I386, 102, 1) == REFUSE, "32-bit calls have others again"
