"""Workers forked by the fork server: they belong to the server, see their own environment, and end as others do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trireme.backends.python.channel import messages
from trireme.backends.python.process import fork_server as fork_server_module
from trireme.backends.python.process.fork_server import ForkServer
from trireme.backends.python.process.forked_worker import ForkedWorker
from trireme.backends.python.process.variables import THREAD_VARIABLES, worker_environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the fork server needs Linux")

TELL = """
import json, os, sys
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        facts = {"mark": os.environ.get("MARK"), "path": os.environ.get("PATH"), "argv": sys.argv,
                 "first": sys.path[0], "draw": int(np.random.randint(1 << 30)), "parent": os.getppid(),
                 "threads": len(os.listdir("/proc/self/task")), "program": open("/proc/self/cmdline").read()}
        matrix = np.ones((512, 512))
        facts["sum"] = (matrix @ matrix).sum()
        facts["computing_threads"] = len(os.listdir("/proc/self/task"))
        print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    started = ForkServer.start()
    assert started is not None
    yield started
    started.close()


class Peer:
    """The server's ends of a forked worker's sockets."""

    def __init__(self, fork_server: ForkServer, **variables: str) -> None:
        self.sock, worker_sock = socket.socketpair()
        self.side, worker_side = socket.socketpair()
        environment = {**worker_environment(os.environ, 1), **variables}
        worker = asyncio.run(fork_server.fork(environment, worker_sock.fileno(), worker_side.fileno()))
        worker_sock.close()
        worker_side.close()
        assert worker is not None
        self.worker: ForkedWorker = worker
        self.sock.settimeout(20)

    def ask(self, message: tuple[object, ...]) -> tuple[object, ...]:
        self.sock.sendall(messages.encode(message))
        head = self._exactly(4)
        return messages.decode(self._exactly(messages.LENGTH.unpack(head)[0]))

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            data += self.sock.recv(count - len(data)) or self._ended()
        return data

    def _ended(self) -> bytes:
        raise AssertionError("the worker ended: " + self.worker.stderr.read().decode())

    def load(self, folder: Path) -> None:
        version = folder / "m" / "1"
        version.mkdir(parents=True, exist_ok=True)
        (version / "model.py").write_text(TELL)
        settings = {
            "model_name": "m",
            "model_version": "1",
            "model_dir": str(folder / "m"),
            "version_dir": str(version),
        }
        settings |= {"model_file": str(version / "model.py"), "instance_name": "m_0"}
        self.sock.sendall(messages.encode((messages.CONFIGURE, settings)))
        assert self.ask((messages.INITIALIZE, {"model_config": "{}"}))[0] == messages.READY

    def close(self) -> None:
        self.sock.close()
        self.side.close()
        self.worker.wait()
        self.worker.stdout.close()
        self.worker.stderr.close()


def facts_of(peer: Peer, folder: Path) -> dict[str, object]:
    peer.load(folder)
    facts: dict[str, object] = json.loads(peer.worker.stdout.readline())
    return facts


def test_a_forked_worker_is_our_child_with_an_environment_of_its_own(fork_server: ForkServer, tmp_path: Path) -> None:
    peer = Peer(fork_server, MARK="here")
    facts = facts_of(peer, tmp_path)
    assert facts["parent"] == os.getpid()
    assert facts["mark"] == "here"
    assert facts["path"] == os.environ["PATH"]
    assert (facts["argv"], facts["first"]) == ([""], "")
    assert "MARK" not in os.environ
    peer.close()
    assert peer.worker.returncode == 0


STREAMS = "[(stream.name, stream.mode, stream.encoding, stream.isatty()) for stream in (sys.stdout, sys.stderr)]"


@pytest.mark.parametrize("encoding", ["", "latin-1"])
def test_a_forked_worker_has_the_streams_of_an_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    plain = subprocess.run(
        [sys.executable, "-c", f"import sys; print({STREAMS})"], check=True, capture_output=True, text=True
    )
    monkeypatch.setattr(f"{__name__}.TELL", TELL.replace("json.dumps(facts)", STREAMS))
    own = ForkServer.start()
    assert own is not None
    with contextlib.closing(own):
        peer = Peer(own)
        peer.load(tmp_path)
        assert peer.worker.stdout.readline().decode() == plain.stdout
        peer.close()


def test_two_workers_draw_different_random_numbers(fork_server: ForkServer, tmp_path: Path) -> None:
    peers = [Peer(fork_server), Peer(fork_server)]
    first, second = (facts_of(peer, tmp_path)["draw"] for peer in peers)
    assert first != second
    for peer in peers:
        peer.close()


def test_finalize_ends_a_forked_worker_with_zero(fork_server: ForkServer, tmp_path: Path) -> None:
    peer = Peer(fork_server)
    peer.load(tmp_path)
    assert peer.ask((messages.FINALIZE,)) == (messages.FINALIZED,)
    assert peer.worker.wait() == 0
    peer.close()


def test_a_killed_worker_tells_its_signal_and_the_next_fork_works(fork_server: ForkServer, tmp_path: Path) -> None:
    peer = Peer(fork_server)
    peer.worker.send_signal(signal.SIGKILL)
    assert peer.worker.wait() == -signal.SIGKILL
    peer.close()
    after = Peer(fork_server)
    after.load(tmp_path)
    after.close()


@pytest.mark.parametrize("variable", ["OMP_WAIT_POLICY", "PYTHONPATH", "LD_PRELOAD"])
def test_variables_that_are_read_at_the_start_need_a_process_of_their_own(
    fork_server: ForkServer, variable: str
) -> None:
    environment = {**worker_environment(os.environ, 1), variable: "77"}
    assert not fork_server.fits(Path(sys.executable), environment)
    assert not fork_server.fits(Path("/another/python"), worker_environment(os.environ, 1))
    assert fork_server.fits(Path(sys.executable), worker_environment(os.environ, 1))


@pytest.fixture
def without_thread_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def own_fork_server(without_thread_variables: None) -> Iterator[ForkServer]:
    """Of a server whose user has said nothing of threads."""
    started = ForkServer.start()
    assert started is not None
    yield started
    started.close()


@pytest.mark.parametrize("instance_count", [1, 2, 3, 1000])
def test_workers_of_any_number_of_instances_are_forked(own_fork_server: ForkServer, instance_count: int) -> None:
    assert own_fork_server.fits(Path(sys.executable), worker_environment(os.environ, instance_count))


def test_threads_that_the_user_has_set_are_those_of_the_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    started = ForkServer.start()
    assert started is not None
    try:
        assert started.fits(Path(sys.executable), worker_environment(os.environ, 3))
        assert not started.fits(Path(sys.executable), {**worker_environment(os.environ, 3), "OMP_NUM_THREADS": "1"})
    finally:
        started.close()


@pytest.mark.parametrize("count", [1, 2])
def test_a_forked_worker_computes_with_the_threads_of_its_own_variables(
    own_fork_server: ForkServer, tmp_path: Path, count: int
) -> None:
    peer = Peer(own_fork_server, **dict.fromkeys(THREAD_VARIABLES, str(count)))
    facts = facts_of(peer, tmp_path)
    peer.close()
    assert facts["computing_threads"] == count
    assert facts["threads"] == 1  # others begin where they have something to compute, and spin before they sleep
    assert "fork_server_main.py" in str(facts["program"])


STUBBORN = """
import sys
sys.path[0] = {folder!r}
import fork_server_main
fork_server_main.blas_threads = lambda: None
fork_server_main.main()
"""


@pytest.mark.usefixtures("without_thread_variables")
def test_where_numpy_takes_no_other_number_of_threads_the_worker_starts_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(STUBBORN.format(folder=str(fork_server_module.FORK_SERVER_SCRIPT.parent)))
    monkeypatch.setattr(fork_server_module, "FORK_SERVER_SCRIPT", program)
    started = ForkServer.start()
    assert started is not None
    facts = []
    for count in (1, 2):
        peer = Peer(started, **dict.fromkeys(THREAD_VARIABLES, str(count)))
        facts.append(facts_of(peer, tmp_path))
        peer.close()
    started.close()
    assert [fact["parent"] for fact in facts] == [os.getpid()] * 2
    assert ["worker_main.py" in str(fact["program"]) for fact in facts] == [False, True]


def test_a_fork_server_that_is_gone_is_replaced_once(tmp_path: Path) -> None:
    fork_server = ForkServer.start()
    assert fork_server is not None
    peer = Peer(fork_server)
    for _ in range(2):
        assert fork_server.fits(Path(sys.executable), worker_environment(os.environ, 1))
        assert fork_server._process is not None
        os.kill(fork_server._process.pid, signal.SIGKILL)
        assert asyncio.run(fork_server.fork(worker_environment(os.environ, 1), 0, 0)) is None
    assert not fork_server.fits(Path(sys.executable), worker_environment(os.environ, 1))
    peer.load(tmp_path)  # what it forked before goes on
    peer.close()
    fork_server.close()


def test_a_fork_server_that_answers_again_may_fail_again() -> None:
    fork_server = ForkServer.start()
    assert fork_server is not None
    for _ in range(3):
        assert fork_server._process is not None
        os.kill(fork_server._process.pid, signal.SIGKILL)
        assert asyncio.run(fork_server.fork(worker_environment(os.environ, 1), 0, 0)) is None
        Peer(fork_server).close()
    fork_server.close()


def children() -> list[str]:
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()


def test_a_worker_is_our_child_from_the_first_moment_on(fork_server: ForkServer) -> None:
    for _ in range(20):
        peer = Peer(fork_server)
        assert str(peer.worker.pid) in children()
        peer.worker.kill()
        assert peer.worker.wait() == -signal.SIGKILL
        assert str(peer.worker.pid) not in children()
        peer.close()


def test_a_worker_that_nobody_waits_for_any_more_is_ended(fork_server: ForkServer) -> None:
    assert fork_server._process is not None
    forker = fork_server._process.pid

    async def give_up() -> int:
        sock, worker_sock = socket.socketpair()
        with sock, worker_sock:
            os.kill(forker, signal.SIGSTOP)
            environment = worker_environment(os.environ, 1)
            asked = asyncio.ensure_future(fork_server.fork(environment, worker_sock.fileno(), worker_sock.fileno()))
            await asyncio.sleep(0.1)
            asked.cancel()
            await asyncio.wait((asked,))
            os.kill(forker, signal.SIGCONT)
            await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})  # type: ignore[arg-type]
            await asyncio.sleep(0)
        return len(os.listdir("/proc/self/fd"))

    Peer(fork_server).close()
    before = children()
    count = asyncio.run(give_up())
    assert asyncio.run(give_up()) == count
    assert children() == before
    Peer(fork_server).close()


def test_one_that_has_ended_is_replaced_though_nobody_asks_it_and_after_two_others_in_a_row_later(
    own_fork_server: ForkServer, caplog: pytest.LogCaptureFixture
) -> None:
    def end() -> None:
        assert own_fork_server._process is not None
        own_fork_server._process.kill()
        os.waitid(os.P_PID, own_fork_server._process.pid, os.WEXITED | os.WNOWAIT)

    own_fork_server.look_after()  # which finds it well
    end()
    own_fork_server.look_after()
    Peer(own_fork_server).close()
    end()
    own_fork_server.look_after()  # the second, but not in a row
    own_fork_server._pause_s = 0.0
    end()
    own_fork_server.look_after()
    assert own_fork_server._process is None
    own_fork_server.look_after()
    Peer(own_fork_server).close()
    ways = ["was replaced", "was replaced", "from scratch for 0 s"]
    assert [way in record.message for way, record in zip(ways, caplog.records, strict=True)] == [True] * 3


def test_processes_that_models_leave_behind_are_all_collected_at_the_second_look(fork_server: ForkServer) -> None:
    orphans = [os.fork() or os._exit(0) for _ in range(5)]
    for orphan in orphans:
        os.waitid(os.P_PID, orphan, os.WEXITED | os.WNOWAIT)
    fork_server.reap_orphans()
    assert [Path(f"/proc/{orphan}").exists() for orphan in orphans] == [True] * 5
    fork_server.reap_orphans()
    assert [Path(f"/proc/{orphan}").exists() for orphan in orphans] == [False] * 5


def test_a_want_of_descriptors_costs_none(fork_server: ForkServer) -> None:
    loop = asyncio.new_event_loop()
    ends = [*socket.socketpair(), *socket.socketpair()]
    environment = worker_environment(os.environ, 1)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        highest = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 10, limits[1]))
        for spare in range(6):  # the request takes two, and four more for what the worker writes
            open_all(taken)
            for _ in range(spare):
                os.close(taken.pop())
            with pytest.raises(OSError, match="Too many open files"):
                loop.run_until_complete(fork_server.fork(environment, ends[1].fileno(), ends[3].fileno()))
            assert open_all(taken) == spare
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)
        for end in ends:
            end.close()
        loop.close()


def open_all(taken: list[int]) -> int:
    """Opens as many files as may be; how many that were."""
    before = len(taken)
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    return len(taken) - before


def test_a_fork_server_that_is_closed_while_it_forks_stays_closed(caplog: pytest.LogCaptureFixture) -> None:
    started = ForkServer.start()
    assert started is not None
    os.kill(started._process.pid, signal.SIGSTOP)  # type: ignore[union-attr]
    ends = [*socket.socketpair(), *socket.socketpair()]

    async def scenario() -> None:
        request = asyncio.ensure_future(
            started.fork(worker_environment(os.environ, 1), ends[1].fileno(), ends[3].fileno())
        )
        await asyncio.sleep(0.05)
        started.close()
        assert await asyncio.wait_for(request, 10) is None

    asyncio.run(scenario())
    for end in ends:
        end.close()
    assert started._process is None
    assert caplog.messages == []
