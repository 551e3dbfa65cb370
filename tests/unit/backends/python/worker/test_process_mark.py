"""The mark of a worker: who has it, who is ended by it, and what stands in for it where it cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trireme.backends.python.process.process_marks import ProcessMarks
from trireme.backends.python.process.worker_process import _end_group
from trireme.backends.python.worker.process_mark import VARIABLE, end_marked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="marks are read from /proc")

TAKE = """
import os, subprocess, sys
{before}
from trireme.backends.python.worker.process_mark import take_mark
take_mark()
child = subprocess.Popen(["sleep", "100"], stdout=subprocess.DEVNULL)
print(child.pid, os.getpgid(0) == os.getpid(), os.environ.get("TRIREME_PROCESS_MARK"), flush=True)
{after}
"""


class Marked:
    """A process with a mark, and its child."""

    def __init__(self, mark: int, before: str = "", after: str = "child.wait()") -> None:
        environment = {**os.environ, VARIABLE: str(mark)}
        code = TAKE.format(before=before, after=after)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            self.child, self.leads_group, self.variable = stdout.readline().split()

    def is_child_alive(self) -> bool:
        try:
            return Path(f"/proc/{self.child}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False


@pytest.fixture
def marks() -> Iterator[ProcessMarks]:
    made = ProcessMarks()
    yield made
    end_marked(made.every)


def test_those_with_the_mark_end_and_no_others(marks: ProcessMarks) -> None:
    mark = marks.next()
    one, other = Marked(mark), Marked(marks.next())
    assert (one.leads_group, one.variable) == ("False", "None")
    end_marked(range(mark, mark + 1))
    assert not one.is_child_alive()
    assert one.process.poll() is not None
    assert other.is_child_alive()
    assert other.process.poll() is None
    end_marked(marks.every)
    assert not other.is_child_alive()
    other.process.wait()


def test_servers_have_other_marks_and_no_worker_has_that_of_another() -> None:
    one, other = ProcessMarks(), ProcessMarks()
    assert one.every.start not in other.every
    given = [one.next() for _ in range(100)]
    assert len(set(given)) == 100
    assert all(mark in one.every for mark in given)


def test_nothing_to_end_costs_no_time(marks: ProcessMarks) -> None:
    seconds = []
    for _ in range(5):  # a busy machine does other things in between
        began = time.monotonic()
        end_marked(range(marks.next(), marks.next()))
        seconds.append(time.monotonic() - began)
    assert min(seconds) < 0.4


def test_without_the_limit_a_worker_leads_a_group_that_ends_with_it(marks: ProcessMarks) -> None:
    marked = Marked(marks.next(), before="import resource; del resource.RLIMIT_RTTIME", after="os._exit(0)")
    assert marked.leads_group == "True"
    deadline = time.monotonic() + 20
    while marked.is_child_alive():
        assert time.monotonic() < deadline
        _end_group(marked.process.pid)
        time.sleep(0.01)
    assert marked.process.wait() == 0


def test_the_group_of_a_process_that_lives_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "100"], start_new_session=True) as process:
        _end_group(process.pid)
        assert process.poll() is None
        process.kill()
