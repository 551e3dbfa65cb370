"""Attacks a server while a second connection asks for its health every 50 ms, and reports what each attack did.

    python tests/scripts/attack_server.py                          # starts a server of its own, and stops it
    python tests/scripts/attack_server.py --only brackets          # one attack, or several
    python tests/scripts/attack_server.py --http 8000 --grpc 8001 --pid 4711    # a server that runs, on loopback

A server that runs needs the models that `write_models` writes. Ends with 0 when no health check took longer than a
second or failed, the server grew by at most 512 MB and was within 64 MB of where it was ten seconds after each attack,
its workers within 320 MB, and inference worked at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from attack_watch import Seen, Watch
from attacked_models import serves, write_models
from attacks import ATTACKS, Ports
from running_server import RunningServer

MAX_HEALTH_S = 1.0
MAX_GROWTH_BYTES = 512_000_000
MAX_LEFT_BYTES = 64_000_000
MAX_WORKER_LEFT_BYTES = 320_000_000
SETTLE_S = 10.0


def main() -> int:
    options = read_options()
    with contextlib.ExitStack() as stack:
        ports, process_id = stack.enter_context(target(options))
        print(
            f"{'attack':28}{'sent':>12}{'took s':>8}{'health s':>10}{'failed':>8}{'grew MB':>9}{'left':>7}{'workers':>9}"
        )
        bad = [name for name in options.only or ATTACKS if not is_withstood(name, ports, process_id)]
        is_serving = serves(ports.http)
    print(f"inference works: {is_serving}; not withstood: {', '.join(bad) or 'none'}")
    return 0 if is_serving and not bad else 1


def is_withstood(name: str, ports: Ports, process_id: int) -> bool:
    with Watch(ports.http, process_id) as watch:
        try:
            sent: int | str = ATTACKS[name](ports)
        except OSError as error:  # it is the server that has to survive
            sent = type(error).__name__
        seen = watch.seen(SETTLE_S)
    megabytes = [value / 1e6 for value in (seen.growth_bytes, seen.left_bytes, seen.worker_left_bytes)]
    print(
        f"{name:28}{sent:>12}{seen.seconds:8.1f}{seen.longest_health_s:10.3f}{seen.failed_health:8}"
        f"{megabytes[0]:9.0f}{megabytes[1]:7.0f}{megabytes[2]:9.0f}",
        flush=True,
    )
    return is_within(seen)


def is_within(seen: Seen) -> bool:
    return (
        seen.longest_health_s <= MAX_HEALTH_S
        and not seen.failed_health
        and seen.growth_bytes <= MAX_GROWTH_BYTES
        and seen.left_bytes <= MAX_LEFT_BYTES
        and seen.worker_left_bytes <= MAX_WORKER_LEFT_BYTES
    )


@contextlib.contextmanager
def target(options: argparse.Namespace) -> Iterator[tuple[Ports, int]]:
    if options.pid:
        yield Ports(options.http, options.grpc), options.pid
        return
    with tempfile.TemporaryDirectory() as name:
        write_models(Path(name))
        with RunningServer(Path(name), *options.flag) as server:
            server.wait_until_listening()
            assert serves(server.ports["http"]), server.log
            yield Ports(server.ports["http"], server.ports["grpc"]), server.process.pid
            if options.log:
                print(json.dumps(server.log[-4000:]))


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=ATTACKS, help="these attacks alone")
    parser.add_argument("--flag", action="append", default=[], help="a flag for the server that is started")
    parser.add_argument("--log", action="store_true", help="print the end of its log")
    parser.add_argument("--http", type=int, default=8000)
    parser.add_argument("--grpc", type=int, default=8001)
    parser.add_argument("--pid", type=int, help="the process of a server that runs already")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
