"""Attacks a server while a second connection asks for its health every 50 ms, and reports what each attack did.

    python tests/scripts/attack_server.py                          # starts a server of its own, and stops it
    python tests/scripts/attack_server.py --only brackets          # one attack, or several
    python tests/scripts/attack_server.py --command tritonserver   # another server with Triton's flags
    python tests/scripts/attack_server.py --fresh                  # each attack meets a server that was just started
    python tests/scripts/attack_server.py --http 8000 --grpc 8001 --pid 4711    # a server that runs, on loopback

A server that runs needs the models that `write_models` and `write_bad_models` write, and to be told to load some
(`load_flags`). A server that dies is started anew for the next attack. Ends with 0 when no health check took longer than
a second or failed, the server grew by at most 512 MB and was within 64 MB of where it was ten seconds after each attack,
its workers within 320 MB, and inference worked after each.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from attack_watch import Seen, Watch, resident_bytes
from attacked_models import load_flags, serves, write_bad_models, write_models
from attacks import ATTACKS, Ports
from connection_attacks import CONNECTION_ATTACKS, NotServedError, short_of_files
from model_attacks import MODEL_ATTACKS
from running_server import RunningServer, port_flags, three_ports

MAX_HEALTH_S = 1.0
MAX_GROWTH_BYTES = 512_000_000
MAX_LEFT_BYTES = 64_000_000
MAX_WORKER_LEFT_BYTES = 320_000_000
SETTLE_S = 10.0
FEW_FILES = 256
"""What a server may open that is attacked by `short_of_files`."""
ALL = {**ATTACKS, **CONNECTION_ATTACKS, **MODEL_ATTACKS, short_of_files.__name__: short_of_files}


def main() -> int:
    options = read_options()
    print(
        f"{'attack':28}{'sent':>12}{'took s':>8}{'health s':>10}{'failed':>8}{'grew MB':>9}{'left':>7}{'workers':>9}  then"
    )
    with tempfile.TemporaryDirectory() as name:
        target = Target(Path(name), options)
        try:
            bad = [attack for attack in options.only or ALL if not is_withstood(attack, target)]
        finally:
            target.stop()
    print(f"not withstood: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


class Target:
    """The server under attack, started anew where it has died or other limits are asked for."""

    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self._folder = folder
        self._options = options
        self._server: AttackedServer | None = None
        self._open_files = 0
        write_models(folder)
        write_bad_models(folder)

    def ready(self, open_files: int = 0) -> tuple[Ports, int]:
        """Where it listens, and its process; 0 open files are as many as there may be."""
        options = self._options
        if options.pid:
            return Ports(options.http, options.grpc), int(options.pid)
        server = self._server
        is_usable = server is not None and server.process.poll() is None and not options.fresh
        if server is None or not is_usable or open_files != self._open_files:
            self.stop()
            self._open_files = open_files
            server = self._server = AttackedServer(self._folder, options.command, open_files, options.flag)
            server.wait_until_listening()
            assert serves(server.ports["http"]), server.log
        return Ports(server.ports["http"], server.ports["grpc"]), server.process.pid

    def stop(self) -> None:
        """Ends the server where it is ours."""
        server, self._server = self._server, None
        if server is not None:
            server.__exit__(None, None, None)
            if self._options.log:
                print(json.dumps(server.log[-4000:]))


class AttackedServer(RunningServer):
    """This project's server, or another one that knows Triton's flags."""

    def __init__(self, folder: Path, command: str, open_files: int, flags: Sequence[str]) -> None:
        self.ports = three_ports()
        program = command or str(Path(sys.executable).with_name("tritonserver"))
        words = [program, "--model-repository=model_repository", *load_flags(), *flags, *port_flags(self.ports)]
        limit = f"ulimit -n {open_files}; " if open_files else ""
        self._start(folder, ["sh", "-c", f'{limit}exec "$@"', "sh", *words])


def is_withstood(name: str, target: Target) -> bool:
    ports, process_id = target.ready(FEW_FILES if name == short_of_files.__name__ else 0)
    is_served = True
    with Watch(ports.http, process_id) as watch:
        try:
            sent: int | str = ALL[name](ports)
        except NotServedError:
            sent, is_served = "not served", False
        except (OSError, http.client.HTTPException) as error:  # it is the server that has to survive
            sent = type(error).__name__
        seen = watch.seen(SETTLE_S)
    is_alive = resident_bytes(process_id) > 0
    is_serving = is_alive and still_serves(ports.http)
    megabytes = [value / 1e6 for value in (seen.growth_bytes, seen.left_bytes, seen.worker_left_bytes)]
    if not is_alive:
        megabytes[1:] = [0, 0]
    print(
        f"{name:28}{sent:>12}{seen.seconds:8.1f}{seen.longest_health_s:10.3f}{seen.failed_health:8}"
        f"{megabytes[0]:9.0f}{megabytes[1]:7.0f}{megabytes[2]:9.0f}"
        f"  {'serves' if is_serving else 'does not serve' if is_alive else 'dead'}",
        flush=True,
    )
    return is_serving and is_served and is_within(seen)


def still_serves(port: int) -> bool:
    try:
        return serves(port)
    except (OSError, http.client.HTTPException):
        return False


def is_within(seen: Seen) -> bool:
    return (
        seen.longest_health_s <= MAX_HEALTH_S
        and not seen.failed_health
        and seen.growth_bytes <= MAX_GROWTH_BYTES
        and seen.left_bytes <= MAX_LEFT_BYTES
        and seen.worker_left_bytes <= MAX_WORKER_LEFT_BYTES
    )


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=ALL, help="these attacks alone")
    parser.add_argument("--command", default="", help="the server to start, in place of this project's")
    parser.add_argument("--flag", action="append", default=[], help="a flag for the server that is started")
    parser.add_argument("--fresh", action="store_true", help="start the server anew for each attack")
    parser.add_argument("--log", action="store_true", help="print the end of its log")
    parser.add_argument("--http", type=int, default=8000)
    parser.add_argument("--grpc", type=int, default=8001)
    parser.add_argument("--pid", type=int, help="the process of a server that runs already")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
