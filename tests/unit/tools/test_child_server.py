"""What a server that this process starts is told of it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from trireme.tools.child_server import ChildServer, ChildServerError, ServerProgram
from trireme.tools.parent_process import variables_for_child

TELLS = "import os; print(*(f'{name}={value}' for name, value in os.environ.items()), sep='\\n')"


def variables_of(program: ServerProgram, folder: Path) -> Mapping[str, str]:
    """Those that a program is started with which tells them and ends."""
    with ChildServer("told-", program) as server:
        server.start(folder, [])
        with pytest.raises(ChildServerError, match="the server has ended"):
            server.wait(60)
        return dict(line.partition("=")[::2] for line in server.log.splitlines())


def test_another_program_gets_no_variable_of_ours(tmp_path: Path) -> None:
    found = variables_of(ServerProgram((sys.executable, "-c", TELLS), {"MINE": "1"}), tmp_path)
    assert found["MINE"] == "1"
    assert [name for name in found if name not in os.environ and name.startswith("TRIREME_")] == []


def test_a_child_that_another_thread_starts_is_not_told_of_it() -> None:
    found: list[Mapping[str, str]] = []
    thread = threading.Thread(target=lambda: found.append(variables_for_child()))
    thread.start()
    thread.join()
    assert found == [{}]
    assert (variables_for_child() != {}) is (sys.platform == "linux")
