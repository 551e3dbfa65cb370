"""Sends the same generated HTTP requests to two servers and lists every difference in status, headers and body.

    python tests/scripts/differential_models.py REPOSITORY     # then start both servers on REPOSITORY
    python tests/scripts/differential.py --ours 127.0.0.1:8000 --theirs 127.0.0.1:9000

Ends with 0 when nothing differs. Differences on purpose are explained in docs/compatibility.md.
"""

from __future__ import annotations

import argparse
import collections
import http.client
import json
import sys

from differential_cases import Case, all_cases

HEADERS = ("content-type", "content-encoding", "inference-header-content-length", "transfer-encoding")


def ask(address: str, case: Case) -> tuple[object, ...]:
    host, port = address.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    try:
        connection.request(case.method, case.path, case.body, case.headers)
        response = connection.getresponse()
        body = response.read()
        return response.status, {h: response.headers.get(h) for h in HEADERS if response.headers.get(h)}, plain(body)
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__, {}, ""
    finally:
        connection.close()


def plain(body: bytes) -> object:
    """JSON where it is JSON, so that blanks do not count; bytes as text otherwise."""
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("latin-1")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--theirs", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    args = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    for case in all_cases(args.seed):
        if args.only not in case.name:
            continue
        theirs, ours = ask(args.theirs, case), ask(args.ours, case)
        kind = next((n for n, a, b in zip(("status", "headers", "body"), theirs, ours, strict=True) if a != b), "same")
        counts[kind] += 1
        if kind != "same":
            print(f"{kind}: {case.name}\n  theirs {theirs!r}\n  ours   {ours!r}")
    print(" ".join(f"{kind} {count}" for kind, count in counts.most_common()))
    return 0 if set(counts) <= {"same"} else 1


if __name__ == "__main__":
    sys.exit(main())
