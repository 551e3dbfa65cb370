"""Mapped memory that its owner may cut off at any moment: what is gone reads as zeros, instead of ending the process.

To touch a page of a mapping that the file behind it no longer has is SIGBUS. Reading and writing through the system
would answer with an error instead, and was measured at three to ten times the cost of a copy from the mapping, so the
signal is answered here: the page and those behind it are replaced by empty memory and the copy goes on. The signal
comes from the very instruction that touched the page, on its own thread, so that this is a call like any other and not
an interruption; the interpreter is in the middle of a copy and holds nothing that the call needs.
"""

from __future__ import annotations

import ctypes
import mmap
import signal
import sys
import weakref
from typing import Any

_SA_SIGINFO = 4
_PROT_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_MAP_FIXED = 0x10  # the same number on every Linux that CPython runs on
_SIGNAL_SET_BYTES = 128
_MAP_FAILED = ctypes.c_void_p(-1).value


class _SigInfo(ctypes.Structure):
    """The head of `siginfo_t` of a fault, on 64 bits."""

    _fields_ = (("number", ctypes.c_int), ("errno", ctypes.c_int), ("code", ctypes.c_int), ("address", ctypes.c_void_p))


class _SigAction(ctypes.Structure):
    """`struct sigaction` of glibc and musl."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * _SIGNAL_SET_BYTES),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class GuardedMapping:
    """Where a mapping lies, and whether some of it was cut off: then it is the client's memory no longer."""

    __slots__ = ("end", "is_cut_off", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self.is_cut_off = False


class FaultGuard:
    """Answers SIGBUS for the mappings it knows, in this whole process; any other fault is what it was without it."""

    _installed: FaultGuard | None = None

    def __init__(self) -> None:
        self._mappings: dict[weakref.ref[mmap.mmap], GuardedMapping] = {}
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        self._libc.mmap.restype = ctypes.c_void_p
        self._libc.mmap.argtypes = (
            ctypes.c_void_p,
            ctypes.c_size_t,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_long,
        )
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(_SigInfo), ctypes.c_void_p)
        self._callback = prototype(self._on_fault)  # kept as long as the system may call it
        self._before = _SigAction()
        action = _SigAction(handler=ctypes.cast(self._callback, ctypes.c_void_p), flags=_SA_SIGINFO)
        self._libc.sigaction(signal.SIGBUS, ctypes.byref(action), ctypes.byref(self._before))

    @classmethod
    def watch(cls, mapping: mmap.mmap) -> GuardedMapping:
        """Guards a mapping for as long as it lives. A signal has one answer per process, so there is one guard."""
        start = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
        guarded = GuardedMapping(start, start + len(mapping))
        if sys.platform == "linux" and sys.maxsize > 2**32:
            if cls._installed is None:
                cls._installed = cls()
            known = cls._installed._mappings
            known[weakref.ref(mapping, lambda gone: known.pop(gone, None))] = guarded
        return guarded

    def _on_fault(self, number: int, info: Any, _context: int) -> None:
        try:
            is_answered = self._fill(info.contents.address)
        except BaseException:  # whatever it is: to return without an answer would fault for ever
            is_answered = False
        if not is_answered:  # the instruction runs again and meets the answer that was there before
            self._libc.sigaction(number, ctypes.byref(self._before), None)

    def _fill(self, address: int) -> bool:
        for guarded in self._mappings.values():
            if guarded.start <= address < guarded.end:
                guarded.is_cut_off = True
                page = address - address % mmap.PAGESIZE
                flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
                filled = self._libc.mmap(page, guarded.end - page, _PROT_READ_WRITE, flags, -1, 0)
                return bool(filled != _MAP_FAILED)
        return False
