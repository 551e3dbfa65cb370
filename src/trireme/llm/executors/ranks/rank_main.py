"""The program of a rank: `python rank_main.py <socket>`, an inherited descriptor that leads to the first rank.

It may run in an interpreter where Trireme is not installed, so it finds the package from where it is itself.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys
import types


def main() -> None:
    """Computes for the first rank until that is gone."""
    fd = int(sys.argv[1])
    os.set_inheritable(fd, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches all of a terminal, and the server decides
    faulthandler.enable()
    _add_package()
    _name_process("trireme-rank")
    from trireme.llm.executors.ranks.follower import follow

    with socket.socket(fileno=fd) as link:
        follow(link)


def _add_package() -> None:
    """Makes `trireme` importable from beside this file, and nothing else that is there."""
    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.path[0] == folder:  # whose names would shadow others
        sys.path[0] = ""
    package = types.ModuleType("trireme")
    package.__path__ = [os.path.dirname(os.path.dirname(os.path.dirname(folder)))]
    sys.modules["trireme"] = package


def _name_process(name: str) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(15, name.encode())  # PR_SET_NAME


if __name__ == "__main__":
    main()
