"""The program of a rank: `python rank_main.py <socket>`, an inherited descriptor that leads to the first rank.

It may run in an interpreter where Trireme is not installed, so it finds the package from where it is itself.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import sys


def main() -> None:
    """Computes for the first rank until that is gone."""
    fd = int(sys.argv[1])
    os.set_inheritable(fd, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches all of a terminal, and the server decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # which was blocked until here
    faulthandler.enable()
    add_package()
    _name_process("trireme-rank")
    from trireme.llm.executors.ranks.follower import follow

    with socket.socket(fileno=fd) as link:
        follow(link)


def add_package() -> None:
    """Imports `trireme` from beside this file, and nothing else that is there. `worker_main.py` does the same for
    itself: before there is a package neither can import what they would share."""
    import importlib.util

    folder = os.path.dirname(os.path.abspath(__file__))
    if sys.path[0] == folder:  # whose names would shadow others
        sys.path[0] = ""
    package_dir = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
    spec = importlib.util.spec_from_file_location("trireme", os.path.join(package_dir, "__init__.py"))
    assert spec is not None
    assert spec.loader is not None
    package = sys.modules["trireme"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)


def _name_process(name: str) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(15, name.encode())  # PR_SET_NAME


if __name__ == "__main__":
    main()
