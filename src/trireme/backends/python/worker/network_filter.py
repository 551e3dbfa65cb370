"""No network for a worker: a filter of system calls that lets sockets be made inside the machine alone (Linux)."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from typing import Final

_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_SECCOMP: Final = 22
_MODE_FILTER: Final = 2
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | errno.EACCES
_AF_UNIX: Final = 1
_IO_URING_SETUP: Final = 425  # the same everywhere; a ring makes sockets without the call for it
_X32_CALLS: Final = 0x40000000

# Offsets in what the kernel shows the filter: the call's number, the machine, the first argument's lower half.
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06

_MACHINES: Final = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""By `uname -m`: the kernel's name for it, and the number of `socket`."""

Step = tuple[int, int, int, int]


def cut_network() -> None:
    """For this process and all that it starts, for good; raises OSError where the system cannot do it."""
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _MACHINES or sys.byteorder != "little":
        raise OSError(errno.ENOSYS, f"a worker cannot be kept from the network on {sys.platform} {machine}")
    steps = filter_program(*_MACHINES[machine])
    packed = b"".join(struct.pack("=HBBI", *step) for step in steps)
    code = ctypes.create_string_buffer(packed, len(packed))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    library = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(program), 0, 0),
    ):
        if library.prctl(ctypes.c_int(arguments[0]), *map(ctypes.c_ulong, arguments[1:])) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"a worker cannot be kept from the network: {os.strerror(number)}")


def filter_program(machine: int, socket_call: int) -> list[Step]:
    """Refuses sockets other than those of the machine itself, and the ways around; everything else passes."""
    return [
        (_LOAD, 0, 0, _MACHINE),
        (_IF_EQUAL, 0, 7, machine),  # else refuse: the calls of another machine have other numbers
        (_LOAD, 0, 0, _NUMBER),
        (_IF_AT_LEAST, 5, 0, _X32_CALLS),
        (_IF_EQUAL, 4, 0, _IO_URING_SETUP),
        (_IF_EQUAL, 0, 2, socket_call),  # else allow
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_IF_EQUAL, 0, 1, _AF_UNIX),  # else refuse
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
