"""Runs tests in several processes that are forked from the one that has collected them.

`pytest --forks=4`: every test file is imported and every framework read once, instead of once per process. The tests
of a file run one after the other in one process; a folder in FOLDERS_WITH_ONE_SERVER counts as a file, and what its
tests share for the session ends with the last of them. Nothing runs in the process that collects, so that a process
that crashes is replaced by one as fresh.

Tests of whole servers wait much and compute little, unit tests the other way round: `--fillers=2` has two more
processes that begin at the other end, run unit tests alone, and take what time of the processors is left.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import forked_commands
import pytest
from distribution import FOLDERS_WITH_ONE_SERVER, place_of, scope_of

PRELOADED = ("torch._dynamo", "transformers.generation.utils", "transformers.models.llama.modeling_llama")
"""What most tests with these packages import in the end, and what takes as long as the packages themselves."""
FILLING = "tests/unit/"
"""What fillers run; it stands at the end of what is collected."""
LESS = 5
"""How much nicer they are: who waits for a server goes first, and what they test does not stand still either."""
END_S = 30.0
"""For so long a process that is interrupted may take to end what it has started."""
PROCESS, PROCESS_COUNT = "TEST_PROCESS", "TEST_PROCESS_COUNT"
"""The variables by which a test process knows which one of how many it is, for what they share out among them."""


class ForkedRun:
    """The plugin in the process that collects: hands out groups of tests, and reports what the others report."""

    def __init__(self, count: int, fillers: int = 0) -> None:
        self._count = count + fillers
        self._fillers = range(count, count + fillers)
        """Their places among the processes."""
        self._children: dict[Connection[Any, Any], TestProcess] = {}
        self._started = 0
        gc.disable()  # what is imported until the fork stays anyway

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.config.option.collectonly or session.testsfailed:
            return None  # pytest says what is the matter
        if threading.active_count() > 1:  # of which a forked process has none, only the locks that they hold
            raise pytest.UsageError(f"importing the tests has started threads: {threading.enumerate()[1:]}")
        groups = deque(groups_of(session.items))
        forked_commands.prepare(
            with_frameworks="torch" in sys.modules,  # as where tests import it, so do models
            is_shared=not session.config.getoption("--cpu-times", False),  # which looks below each process
        )
        for name in PRELOADED if len(groups) > 1 else ():
            if name.split(".")[0] in sys.modules:
                importlib.import_module(name)
        if len(groups) > 1 and any(hasattr(getattr(item, "obj", None), "hypothesis") for item in session.items):
            draw_text()
        gc.collect()
        gc.freeze()  # neither copied nor looked through again by the processes to come
        gc.enable()
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # who ends the run ends what it has started
        try:
            for place in range(min(self._count, len(groups))):
                self._start(session, place)
            while self._children:
                self._turn(session, groups)
        finally:
            for child in self._children.values():
                child.interrupt()
            for child in self._children.values():
                child.end()
        return True

    def _turn(self, session: pytest.Session, groups: deque[list[int]]) -> None:
        """Whatever has arrived from the processes by now."""
        ready = wait([*self._children, *(child.sentinel for child in self._children.values())])
        for connection, child in list(self._children.items()):
            if connection in ready:
                try:
                    kind, content = connection.recv()
                except (EOFError, OSError):  # the process is gone, and may not have read what it was sent
                    self._bury(session, child, groups)
                else:
                    self._take(session, child, kind, content, groups)
            elif child.sentinel in ready and not connection.poll():  # gone, while what it started holds it open
                self._bury(session, child, groups)

    def _take(
        self, session: pytest.Session, child: TestProcess, kind: str, content: Any, groups: deque[list[int]]
    ) -> None:
        hook = session.config.hook
        if kind == "next":
            child.group = self._next(session, child.place, groups)
            with suppress(OSError):  # its end will be noticed
                child.connection.send(child.group)
        elif kind == "begin":
            child.running = content
            child.group.remove(content)
        elif kind == "reports":
            for data in content:
                self._report(session, data)
        elif kind == "end":
            nodeid, location, reports = content
            for data in reports:
                self._report(session, data)
            child.running = child.group.pop(0) if child.group else None
            hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
        elif kind == "failure":
            self._fail(session, f"the end of {child.name}", content)
        elif kind == "done":
            child.is_done = True

    @staticmethod
    def _report(session: pytest.Session, content: pytest.TestReport | dict[str, Any]) -> None:
        hook, report = session.config.hook, content
        if isinstance(report, dict):
            report = hook.pytest_report_from_serializable(config=session.config, data=report)
        hook.pytest_runtest_logreport(report=report)
        for reason in (session.shouldfail, session.shouldstop):
            if reason:
                raise session.Failed(reason) if reason is session.shouldfail else session.Interrupted(reason)

    def _next(self, session: pytest.Session, place: int, groups: deque[list[int]]) -> list[int]:
        """The group for the process in this place, which ends where there is none for it any more."""
        if place not in self._fillers:
            return groups.popleft() if groups else []
        return groups.pop() if groups and session.items[groups[-1][0]].nodeid.startswith(FILLING) else []

    def _start(self, session: pytest.Session, place: int) -> None:
        ours, theirs = Pipe()
        name = f"process-{self._started}"
        self._started += 1
        folder = session.config._tmp_path_factory.getbasetemp() / name  # type: ignore[attr-defined]
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.environ |= {PROCESS: str(place), PROCESS_COUNT: str(self._count)}
            if place in self._fillers:
                os.nice(LESS)
            folder.mkdir()
            session.config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
            run_and_exit(session, theirs, name)
        theirs.close()
        self._children[ours] = TestProcess(pid, name, place, ours)

    def _bury(self, session: pytest.Session, child: TestProcess, groups: deque[list[int]]) -> None:
        """A process that ended before its time fails the test that it ran; another one takes up the rest."""
        del self._children[child.connection]
        code = child.wait()
        if child.is_done:
            return
        running = session.items[child.running].nodeid if child.running is not None else f"the end of {child.name}"
        self._fail(session, running, f"{child.name} ended with {code} while it ran this")
        if child.group and child.place in self._fillers:
            groups.append(child.group)
        elif child.group:
            groups.appendleft(child.group)
        if groups:
            self._start(session, child.place)

    @staticmethod
    def _fail(session: pytest.Session, nodeid: str, text: str) -> None:
        report = pytest.TestReport(nodeid, (nodeid.split("::")[0], None, nodeid), {}, "failed", text, "teardown")
        session.config.hook.pytest_runtest_logreport(report=report)


class TestProcess:
    """One of the forked processes, as the first one sees it."""

    __test__ = False

    def __init__(self, pid: int, name: str, place: int, connection: Connection[Any, Any]) -> None:
        self.name = name
        self.place = place
        self.connection = connection
        self.sentinel = os.pidfd_open(pid)
        self.group: list[int] = []
        """What it has been given and not begun."""
        self.running: int | None = None
        self.is_done = False
        self._pid = pid

    def wait(self) -> int:
        """Its exit code, negative for a signal."""
        self.connection.close()
        os.close(self.sentinel)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def interrupt(self) -> None:
        """Has it leave the test that it runs and end what its fixtures have started."""
        signal.pidfd_send_signal(self.sentinel, signal.SIGINT)

    def end(self) -> None:
        if not wait([self.sentinel], END_S):
            signal.pidfd_send_signal(self.sentinel, signal.SIGKILL)
        self.wait()


class Reporting:
    """In place of pytest's own in a forked process: passes on what would be shown, what says that all is well with the
    end of the test, because each message wakes the first process."""

    def __init__(self, config: pytest.Config, connection: Connection[Any, Any]) -> None:
        self._config = config
        self._connection = connection
        self._tw = config.get_terminal_writer()  # for who has to say something at once, as a test without end
        self._unsent: list[pytest.TestReport | dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if type(report) is pytest.TestReport and report.longrepr is None:  # words and numbers alone
            self._unsent.append(report)
            return
        self._unsent.append(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))
        self._connection.send(("reports", self._unsent))
        self._unsent = []

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        self._connection.send(("end", (nodeid, location, self._unsent)))
        self._unsent = []


def run_and_exit(session: pytest.Session, connection: Connection[Any, Any], name: str) -> None:
    """The whole life of a forked process."""
    try:
        _become_a_worker(session.config, connection, name)
        for number, nextitem in _assigned(session, connection):
            item = session.items[number]
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        session.config.hook.pytest_sessionfinish(session=session, exitstatus=0)  # ends what the session has made
        session.config.hook.pytest_unconfigure(config=session.config)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal, and from the first process as well
        session.config.hook.pytest_sessionfinish(session=session, exitstatus=2)
        os._exit(130)
    except BaseException:
        connection.send(("failure", traceback.format_exc()))
    connection.send(("done", None))
    os._exit(0)  # what tests left behind, a thread for one, ends with the process


def _become_a_worker(config: pytest.Config, connection: Connection[Any, Any], name: str) -> None:
    config.workerinput = {"workerid": name}  # type: ignore[attr-defined]  # by this plugins know that others report
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # into a file that all processes would share
    capture.start_global_capturing()
    capture.suspend_global_capture()
    reporting = Reporting(config, connection)
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(reporting, "terminalreporter")


def _assigned(session: pytest.Session, connection: Connection[Any, Any]) -> Iterator[tuple[int, Any]]:
    """The tests to run, each with its successor: behind the last of a group the session, which goes on, and behind that
    of a folder with one server nothing, so that server and browser end before others begin."""
    while True:
        connection.send(("next", None))
        group = connection.recv()
        if not group:
            return
        connection.send(("begin", group[0]))  # the others begin when the one before them ends
        is_folder = scope_of(session.items[group[-1]].nodeid) in FOLDERS_WITH_ONE_SERVER
        for number, following in zip(group, [*group[1:], None], strict=True):
            last = None if is_folder else session
            yield number, last if following is None else session.items[following]


def draw_text() -> None:
    """Has hypothesis sort Unicode's characters, for which each process would take two seconds where no earlier run has
    left them on disk. The constants in the sources it has read when the tests were collected."""
    from hypothesis import given, settings
    from hypothesis import strategies as st

    settings(database=None, deadline=None, max_examples=1)(given(st.text())(lambda text: None))()


def groups_of(items: list[pytest.Item]) -> list[list[int]]:
    """The places of the tests that belong together, the longest first and then in the order of the first ones."""
    groups: dict[str, list[int]] = {}
    for number, item in enumerate(items):
        groups.setdefault(scope_of(item.nodeid), []).append(number)
    return [groups[scope] for scope in sorted(groups, key=place_of)]
