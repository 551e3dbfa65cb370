"""Memory that is cut off under a view of it: in processes of their own, since a failure would end the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the guard is for Linux")

OPENED = """
import os, mmap, tempfile, threading
from trireme.memory.fault_guard import FaultGuard

file = tempfile.TemporaryFile()
file.truncate(8 * mmap.PAGESIZE)
mapping = mmap.mmap(file.fileno(), 8 * mmap.PAGESIZE)
mapping[:] = b"x" * len(mapping)
"""
GUARDED = OPENED + "guarded = FaultGuard.watch(mapping)\n"


def run(code: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ}, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def test_what_is_cut_off_reads_as_zeros_and_is_remembered() -> None:
    code = GUARDED + (
        "file.truncate(3 * mmap.PAGESIZE)\n"
        "copy = bytes(memoryview(mapping))\n"
        "assert copy == b'x' * (3 * mmap.PAGESIZE) + bytes(5 * mmap.PAGESIZE)\n"
        "assert guarded.is_cut_off\n"
    )
    assert run(code) == (0, "")


def test_writes_end_as_well_and_do_not_reach_the_file() -> None:
    code = GUARDED + (
        "file.truncate(0)\n"
        "memoryview(mapping)[:] = b'y' * len(mapping)\n"
        "assert guarded.is_cut_off\n"
        "assert os.fstat(file.fileno()).st_size == 0\n"
    )
    assert run(code) == (0, "")


def test_copies_beside_the_main_thread_are_guarded() -> None:
    code = GUARDED + (
        "import hashlib\n"
        "file.truncate(0)\n"
        "seen = []\n"
        "reader = threading.Thread(target=lambda: seen.append(hashlib.blake2b(mapping).digest()))\n"
        "reader.start()\n"
        "reader.join()\n"
        "assert seen == [hashlib.blake2b(bytes(len(mapping))).digest()]\n"
    )
    assert run(code) == (0, "")


def test_a_fault_of_somebody_else_ends_the_process_as_ever() -> None:
    code = GUARDED + (
        "other = tempfile.TemporaryFile()\n"
        "other.truncate(mmap.PAGESIZE)\n"
        "lost = mmap.mmap(other.fileno(), mmap.PAGESIZE)\n"
        "other.truncate(0)\n"
        "bytes(memoryview(lost))\n"
    )
    assert run(code)[0] == -signal.SIGBUS


def test_a_mapping_that_is_gone_is_forgotten() -> None:
    code = GUARDED + ("del mapping\nassert not FaultGuard._installed._mappings\n")
    assert run(code) == (0, "")


def test_without_the_guard_the_process_would_end() -> None:
    code = OPENED + "file.truncate(0)\nbytes(memoryview(mapping))\n"
    assert run(code)[0] == -signal.SIGBUS
