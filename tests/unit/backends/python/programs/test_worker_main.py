"""The worker as a process of its own: its start, its output, its ends."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

import trireme
from trireme.backends.python.channel import messages

ANSWER = "return [pb_utils.InferenceResponse([]) for _ in requests]"


def test_worker_serves_and_ends_cleanly(start: Callable[..., Any]) -> None:
    worker = start(
        f"""
        class TritonPythonModel:
            def execute(self, requests):
                print("seen", flush=False)
                {ANSWER}
            def finalize(self):
                print("bye")
        """
    )
    worker.execute()
    assert worker.receive()[3] is None
    assert worker.process.stdout is not None
    assert worker.process.stdout.readline() == "seen\n"
    worker.send((messages.FINALIZE,))
    assert worker.receive() == (messages.FINALIZED,)
    out, err = worker.process.communicate(timeout=20)
    assert (worker.process.returncode, out, err) == (0, "bye\n", "")


def test_worker_needs_nothing_installed_but_numpy(start: Callable[..., Any]) -> None:
    worker = start(
        """
        import sys
        class TritonPythonModel:
            def execute(self, requests):
                print(sys.argv, [n for n in sys.modules if n.split(".")[0] == "trireme"
                      and not n.startswith(("trireme.backends", "trireme.core")) and n != "trireme"])
                return [pb_utils.InferenceResponse([])]
        """,
        "-I",
    )
    worker.execute()
    worker.receive()
    assert worker.process.stdout is not None
    assert worker.process.stdout.readline() == "[''] []\n"


def test_a_model_can_tell_with_which_release_it_runs(start: Callable[..., Any]) -> None:
    worker = start(
        """
        import trireme
        class TritonPythonModel:
            def execute(self, requests):
                raise RuntimeError(f"{trireme.__version__} {trireme.__spec__.name}")
        """,
        "-I",
    )
    worker.execute()
    assert worker.receive()[3][1].startswith(f"RuntimeError: {trireme.__version__} trireme\n")


@pytest.mark.parametrize("chosen", [(0, 10, 10), (100, 5, 5)])
def test_how_often_a_model_wants_garbage_collected_is_its_own(start: Callable[..., Any], chosen: Any) -> None:
    worker = start(
        f"""
        import gc
        gc.set_threshold(*{chosen})
        class TritonPythonModel:
            def execute(self, requests):
                raise RuntimeError(gc.get_threshold())
        """
    )
    worker.execute()
    assert worker.receive()[3][1].startswith(f"RuntimeError: {chosen}\n")


def test_worker_whose_server_is_gone_exits_quietly(start: Callable[..., Any]) -> None:
    worker = start(f"class TritonPythonModel:\n    def execute(self, requests): {ANSWER}")
    worker.hang_up()
    out, err = worker.process.communicate(timeout=20)
    assert (worker.process.returncode, out, err) == (0, "", "")


def test_threads_of_the_model_do_not_keep_an_orphan_alive(start: Callable[..., Any]) -> None:
    worker = start(
        """
        import threading
        class TritonPythonModel:
            def initialize(self, args):
                threading.Thread(target=threading.Event().wait).start()
        """
    )
    worker.hang_up()
    assert worker.process.wait(20) == 0


@pytest.mark.parametrize("keyword", ["", "async "], ids=["plain", "coroutine"])
def test_system_exit_in_execute_is_an_error_of_the_batch(start: Callable[..., Any], keyword: str) -> None:
    worker = start(f"import sys\nclass TritonPythonModel:\n    {keyword}def execute(self, requests): sys.exit(7)")
    for _ in range(2):
        worker.execute()
        kind, _, answers, error, *_ = worker.receive()
        assert (kind, answers) == (messages.RESULTS, [])
        assert error[1].startswith("SystemExit: 7\n\nAt:\n")
    assert worker.process.poll() is None


def test_system_exit_in_a_forked_child_ends_the_child(start: Callable[..., Any]) -> None:
    worker = start(
        """
        import os, sys
        class TritonPythonModel:
            def execute(self, requests):
                child = os.fork()
                if child == 0:
                    sys.exit(7)
                raise RuntimeError(f"the child left {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
        """
    )
    worker.execute()
    assert worker.receive() == (messages.CHILDREN,)
    assert worker.receive()[3][1].startswith("RuntimeError: the child left 7")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_the_whole_group_are_left_to_the_server(start: Callable[..., Any], number: signal.Signals) -> None:
    worker = start(f"class TritonPythonModel:\n    def execute(self, requests): {ANSWER}")
    worker.process.send_signal(number)
    worker.execute()
    assert worker.receive()[3] is None


def test_sigterm_ends_a_model_that_does_not_come_to_an_end_and_what_the_model_started(
    start: Callable[..., Any],
) -> None:
    worker = start(
        """
        import multiprocessing, subprocess, time
        class TritonPythonModel:
            def execute(self, requests):
                started = subprocess.Popen(["sleep", "60"])
                started.terminate()
                for _ in range(40):  # as soon as each is there
                    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
                    forked.start()
                    forked.terminate()
                    forked.join(5)
                    if forked.exitcode != -15:
                        break
                raise RuntimeError(f"{forked.exitcode} {started.wait(5)}")
            def finalize(self):
                print("finalizing", flush=True)
                time.sleep(60)
        """
    )
    worker.execute()
    assert worker.receive() == (messages.CHILDREN,)
    assert worker.receive()[3][1].startswith("RuntimeError: -15 -15")
    worker.send((messages.FINALIZE,))
    assert worker.process.stdout is not None
    assert worker.process.stdout.readline() == "finalizing\n"
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(20) == -signal.SIGTERM


@pytest.mark.parametrize("is_debug", [False, True])
def test_a_program_that_the_model_starts_can_be_interrupted(start: Callable[..., Any], is_debug: bool) -> None:
    worker = start(
        """
        import signal, subprocess
        class TritonPythonModel:
            def execute(self, requests):
                started = subprocess.Popen(["sleep", "60"])
                started.send_signal(signal.SIGINT)
                raise RuntimeError(started.wait(20))
        """,
        is_debug=is_debug,
    )
    worker.execute()
    assert worker.receive()[3][1].startswith("RuntimeError: -2\n")


def test_a_forked_child_keeps_the_handler_that_the_model_has_set(start: Callable[..., Any]) -> None:
    worker = start(
        """
        import multiprocessing, os, signal, time
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(7))
        class TritonPythonModel:
            def execute(self, requests):
                forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
                forked.start()
                forked.terminate()
                forked.join(20)
                raise RuntimeError(forked.exitcode)
        """
    )
    worker.execute()
    assert worker.receive() == (messages.CHILDREN,)
    assert worker.receive()[3][1].startswith("RuntimeError: 7\n")


def test_crash_leaves_the_stack_on_stderr(start: Callable[..., Any]) -> None:
    worker = start("import os\nclass TritonPythonModel:\n    def execute(self, requests): os.abort()")
    worker.execute()
    _, err = worker.process.communicate(timeout=20)
    assert worker.process.returncode == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in err
    assert "in execute" in err


def test_forked_child_neither_speaks_on_the_link_nor_keeps_it_open(start: Callable[..., Any]) -> None:
    worker = start(
        """
        import os, time
        class TritonPythonModel:
            def execute(self, requests):
                if os.fork() == 0:
                    pb_utils.Logger.log_info("from the child")
                    time.sleep(5)
                    os._exit(0)
                os._exit(3)
        """
    )
    worker.execute()
    assert worker.receive() == (messages.CHILDREN,)
    with pytest.raises(EOFError):
        worker.receive()
    assert worker.process.stderr is not None
    assert "from the child" in worker.process.stderr.readline()


def test_standard_logging_goes_to_the_servers_log(start: Callable[..., Any]) -> None:
    worker = start(
        """
        import logging
        class TritonPythonModel:
            def execute(self, requests):
                logging.getLogger(__name__).warning("told")
                return [pb_utils.InferenceResponse([])]
        """
    )
    worker.execute()
    assert worker.receive() == (messages.LOG, "W", "model.py", 7, "[model_0_0] told")
