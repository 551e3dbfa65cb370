"""What all tests share: `tiny_models` can be imported, hypothesis does not mind a busy machine, and the processes that
tests start find the surroundings of a terminal."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

import forked_commands
import left_processes
import rewritten_assertions

# Some hundred servers and workers start in a run: what one of them has compiled, the next one reads.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Many processes compute side by side: a thread that waits for another one leaves it the core instead of spinning.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# A test that uses a gRPC client leaves handlers behind that end the processes which later tests fork.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# A run that a shell has put into the background ignores Ctrl+C, and so would every server that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=1, help="run files of tests in so many processes side by side")
    parser.addoption("--fillers", type=int, default=0, help="and in so many more, which run unit tests in between")
    parser.addoption("--cpu-times", action="store_true", help="list the files that took most processor time")
    parser.addoption("--fresh-interpreters", action="store_true", help="fork no command, start each from scratch")
    parser.addoption("--frontend-processes", type=int, help="so many for every server that a test starts as a command")
    parser.addoption("--frontend-leases", action="store_true", help="these servers lease workers to their front ends")


def pytest_configure(config: pytest.Config) -> None:
    rewritten_assertions.install()
    count = config.getoption("--frontend-processes")
    if count is not None:
        os.environ["TRIREME_FRONTEND_PROCESSES"] = str(count)
    if config.getoption("--frontend-leases"):
        os.environ["TRIREME_FRONTEND_LEASES"] = "true"
    left_processes.watch(config, spared=forked_commands.starter_pids)
    if config.getoption("forks") > 1:
        from forked_run import ForkedRun

        config.pluginmanager.register(ForkedRun(config.getoption("forks"), config.getoption("fillers")))
    if config.getoption("--cpu-times"):
        from cpu_times import CpuTimes

        config.pluginmanager.register(CpuTimes())
    if sys.platform == "linux" and not config.getoption("--fresh-interpreters"):
        forked_commands.install()


@pytest.fixture
def fresh_interpreters() -> Iterator[None]:
    """Commands that a test starts are started from scratch, as a user does it: for tests of the start itself. Those of
    the tests behind it in the file are not."""
    with forked_commands.fresh_interpreters():
        yield
