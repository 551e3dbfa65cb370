"""Seconds from a fresh clone to the first answer: `git clone`, `make serve`, and a curl that is sent until it is answered.

    python benchmarks/first_answer.py              # the last commit of this clone
    python benchmarks/first_answer.py --keep DIR   # clone to DIR and leave it there, to look at the second start

Exits with 1 where it took longer than `--limit`. Packages come from wherever pip is configured to take them.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
QUESTION = b'{"text_input": "Hello"}'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that it may take (default: 60)")
    parser.add_argument("--keep", type=pathlib.Path, help="where to clone to, without removing it afterwards")
    chosen = parser.parse_args()
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="trireme-first-answer-"))
    try:
        seconds, answer = measure(chosen.keep or scratch / "clone", chosen.limit)
    finally:
        end_compiling(scratch / "clone")
        shutil.rmtree(scratch, ignore_errors=True)
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    print(f"first answer after {seconds:.1f} s (limit {chosen.limit:g} s): {answer}")
    print(f"{os.cpu_count()} cores, load average {load}")
    return 0 if seconds <= chosen.limit else 1


def measure(clone: pathlib.Path, limit: float) -> tuple[float, str]:
    """The seconds until the first answer, and the answer."""
    ports = free_ports(3)
    flags = "--http-port={} --grpc-port={} --metrics-port={}".format(*ports)
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    began = time.monotonic()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    print(f"{time.monotonic() - began:5.1f} s  cloned", flush=True)
    command = ["make", "serve", f"ARGS={flags}"]
    with subprocess.Popen(command, cwd=clone, env=environ, start_new_session=True) as server:
        try:
            answer = first_answer(f"http://localhost:{ports[0]}/v2/models/shout/generate", server, began + 10 * limit)
            return time.monotonic() - began, answer
        finally:
            stop(server)


def first_answer(url: str, server: subprocess.Popen[bytes], deadline: float) -> str:
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(url, QUESTION, timeout=10) as response:
                return response.read().decode()
        except OSError:
            time.sleep(0.05)
    raise SystemExit("the server gave no answer")


def stop(server: subprocess.Popen[bytes]) -> None:
    """As Ctrl+C does it, to make and the server alike."""
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGINT)


def end_compiling(clone: pathlib.Path) -> None:
    """`make serve` compiles in a session of its own, which goes on behind the server and needs the clone."""
    try:
        pid = int((clone / ".venv/.compiling").read_text().split()[0])
        if b"background_build" not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
            return  # another process has the number now
        os.killpg(pid, signal.SIGKILL)
    except (OSError, ValueError, IndexError):
        return  # it was not begun, or has ended
    while pathlib.Path(f"/proc/{pid}").exists():
        time.sleep(0.05)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


if __name__ == "__main__":
    sys.exit(main())
