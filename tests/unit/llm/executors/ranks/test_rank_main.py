"""The program of a rank, up to where it loads its part."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

import trireme
from trireme.llm.executors.ranks.program import PROGRAM, start_rank

pytestmark = pytest.mark.usefixtures("fresh_interpreters")


def test_a_rank_has_the_whole_package_where_it_is_not_installed() -> None:
    program = (
        f"import json, sys; sys.path.insert(0, {str(PROGRAM.parent)!r})\n"
        "import rank_main\n"
        "is_installed = __import__('importlib.util').util.find_spec('trireme') is not None\n"
        "rank_main.add_package()\n"
        "import trireme, trireme.core.errors\n"
        "facts = trireme.__version__, trireme.__file__, trireme.__spec__.name, list(trireme.__path__), sys.path[0]\n"
        "print(json.dumps([is_installed, *facts]))"
    )
    command = [sys.executable, "-I", "-S", "-c", program]  # without the folders of installed packages
    is_installed, version, file, name, path, first = json.loads(subprocess.check_output(command))
    assert not is_installed
    assert version == trireme.__version__
    assert Path(file) == Path(str(trireme.__file__))
    assert name == "trireme"
    assert path == [str(Path(file).parent)]
    assert first == "", "the folder of the program would shadow others"


def test_ctrl_c_does_not_end_a_rank_whose_program_has_just_begun() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            rank = start_rank(theirs)
        rank.send_signal(signal.SIGINT)
        ours.settimeout(60)
        ours.sendall(b"no setup\n")
        assert b"JSONDecodeError" in ours.recv(1 << 16), "it had not come so far"
    assert rank.wait(60) >= 0


def test_a_rank_leaves_ctrl_c_unblocked_for_those_it_starts_and_for_who_started_it() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            rank = start_rank(theirs)
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        blocked = 1 << (signal.SIGINT - 1)
        until(lambda: not _mask(rank.pid, "SigBlk") & blocked)
        assert _mask(rank.pid, "SigIgn") & blocked
    assert rank.wait(60) == 0


def _mask(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1], 16)
    raise AssertionError(name)
