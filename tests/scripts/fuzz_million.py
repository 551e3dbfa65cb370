"""Throws a million hostile inputs at a server that it starts, and at the readers of configurations, in one run.

    python tests/scripts/fuzz_million.py                       # a million, seed 1
    python tests/scripts/fuzz_million.py --inputs 20000 --seed 7

An input is one request, one call, one frame, or one configuration. Ends with 0 when the server lives and serves, its log
has no traceback, it has grown by less than 64 MiB since the first twentieth, and no reader of configurations raised
anything but the errors that say what is wrong with them. The same seed throws the same inputs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from attack_watch import resident_bytes, worker_bytes
from differential_models import write as write_repository
from fuzz import GENERATE, GOOD, http_is_well, http_noise, mutate, random_field
from hostile_configs import refuses_or_takes
from raw_grpc import HEADERS, PREFACE, data, frame, headers, message
from running_server import RunningServer

TOGETHER = 32
"""Connections at a time."""
PATIENCE_S = 5.0
MAX_GROWTH_BYTES = 64 << 20
MODELS = ("batch", "copy_string", "stream")
SERVICE = "/inference.GRPCInferenceService/"
METHODS = (
    "ModelInfer", "ModelInfer", "ModelInfer", "ModelStreamInfer", "ModelMetadata", "ModelConfig", "ModelStatistics",
    "RepositoryIndex", "TraceSetting", "LogSettings", "ServerReady", "SystemSharedMemoryRegister",
    "SystemSharedMemoryStatus", "SystemSharedMemoryUnregister", "CudaSharedMemoryRegister", "NoSuchMethod",
)  # fmt: skip
REGION = json.dumps({"key": "/fuzz", "offset": 0, "byte_size": 64}).encode()
IN_REGION = json.dumps(
    {
        "inputs": [
            {
                "name": "IN",
                "datatype": "FP32",
                "shape": [1, 3],
                "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 12, "shared_memory_offset": 4},
            }
        ],
        "outputs": [{"name": "OUT", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 12}}],
    }
).encode()
Inputs = tuple[bytes, int]
"""What is sent on one connection, and how many inputs that is."""


def http1(source: random.Random) -> Inputs:
    """One thing that looks more or less like a request."""
    return http_noise(source), 1


def json_bodies(source: random.Random) -> Inputs:
    """Requests in good framing with broken bodies, the last of which ends the connection."""
    paths = (b"/v2/models/batch/infer", b"/v2/models/copy_string/generate", b"/v2/models/stream/generate_stream",
             b"/v2/logging", b"/v2/trace/setting", b"/v2/repository/index", b"/v1/completions", b"/v1/embeddings")  # fmt: skip
    goods = (GOOD, GENERATE, b'{"ready":true}', b'{"log_info":true}', b'{"model":"batch","prompt":"x","n":2}')
    return _requests([(source.choice(paths), mutate(source, source.choice(goods))) for _ in range(50)]), 50


def shared_memory(source: random.Random) -> Inputs:
    """Regions that are registered, used and forgotten wrongly."""
    requests = []
    for _ in range(50):
        kind, name = source.choice((b"system", b"cuda")), source.choice((b"r", b"%00", b"r/../x", b"a" * 300))
        order = source.choice((b"register", b"register", b"unregister", b"status"))
        body = mutate(source, REGION) if source.random() < 0.8 else REGION
        requests.append((b"/v2/%bsharedmemory/region/%b/%b" % (kind, name, order), body))
        requests.append((b"/v2/models/batch/infer", mutate(source, IN_REGION)))
    return _requests(requests), len(requests)


def http2(source: random.Random) -> Inputs:
    """Frames of every kind, most of them wrong."""
    block = b"\x83\x86\x45\x04/abc\x41\x01x"
    parts = [PREFACE, frame(4, 0, 0, b"")]
    for _ in range(40):
        payload = source.choice((block, b"", source.randbytes(source.randint(0, 300)), bytes(4), b"\x7f\xff\xff\xff"))
        stream = source.choice((0, 1, 3, 5, 7, 2, 0x7FFFFFFF, source.randrange(1 << 31)))
        parts.append(frame(source.randrange(12), source.choice((0, 1, 4, 5, 8, 255)), stream, payload))
    return b"".join(parts), 40


def protobuf(source: random.Random) -> Inputs:
    """Calls in good framing with random messages, and one more, which is answered last."""
    parts = [PREFACE, frame(4, 0, 0, b"")]
    for number in range(60):
        stream = 2 * number + 1
        content = b"".join(random_field(source, 0) for _ in range(source.randint(0, 6)))
        parts.append(headers(stream, SERVICE + source.choice(METHODS), source.choice(("identity", "identity", "gzip"))))
        parts.append(data(stream, message(content, is_gzipped=source.random() < 0.2)))
    return b"".join([*parts, headers(121, SERVICE + "ServerLive"), data(121, message(b""))]), 60


def _requests(requests: list[tuple[bytes, bytes]]) -> bytes:
    parts = [
        b"POST %b HTTP/1.1\r\nHost: x\r\n%bContent-Length: %d\r\n\r\n%b"
        % (path, b"Connection: close\r\n" if number == len(requests) - 1 else b"", len(body), body)
        for number, (path, body) in enumerate(requests)
    ]
    return b"".join(parts)


SENT: dict[str, tuple[Callable[[random.Random], Inputs], str, float]] = {
    "HTTP/1": (http1, "http", 0.1),
    "JSON": (json_bodies, "http", 0.35),
    "shared memory": (shared_memory, "http", 0.1),
    "HTTP/2": (http2, "grpc", 0.2),
    "protobuf": (protobuf, "grpc", 0.2),
}
"""What makes the inputs, the port they go to, and their share of all; the rest are configurations."""


async def throw(port: int, kind: str, raw: bytes) -> None:
    """Sends it all, and reads until the server closes or, where it does not, has answered the last call."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return
    try:
        writer.write(raw)
        if kind in ("HTTP/1", "HTTP/2"):
            writer.write_eof()
        async with asyncio.timeout(PATIENCE_S):
            if kind == "protobuf":
                await _read_until_last(reader)
            else:
                while await reader.read(1 << 16):
                    pass
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.transport.abort()


async def _read_until_last(reader: asyncio.StreamReader) -> None:
    while True:
        head = await reader.readexactly(9)
        await reader.readexactly(int.from_bytes(head[:3], "big"))
        if head[3] == HEADERS and head[4] & 1 and int.from_bytes(head[5:], "big") == 121:
            return


async def throw_all(server: RunningServer, kind: str, count: int, source: random.Random) -> None:
    """So many inputs of one kind."""
    make, port, _ = SENT[kind]
    left = count
    while left > 0:
        batch = [make(source) for _ in range(TOGETHER)]
        await asyncio.gather(*(throw(server.ports[port], kind, raw) for raw, _ in batch))
        left -= sum(number for _, number in batch)
        assert server.process.poll() is None, f"the server died of {kind}"
        assert b"Traceback" not in _end_of_log(server), server.log[-5000:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    source = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        write_repository(Path(name) / "model_repository")
        loads = [f"--load-model={model}" for model in MODELS]
        flags = ["--allow-client-shm=true", "--model-control-mode=explicit", "--log-info=false", *loads]
        with RunningServer(Path(name), *flags) as server:
            server.until(lambda: _is_listening(server), 120)
            is_well = run(server, options.inputs, source)
    return 0 if is_well else 1


def run(server: RunningServer, inputs: int, source: random.Random) -> bool:
    """All kinds: a twentieth of each first, then where the memory stands, then the rest."""
    process_id, first_bytes, done = server.process.pid, 0, 0
    for part, label in ((inputs // 20, "a twentieth"), (inputs - inputs // 20, "the rest")):
        for kind, (_, _, share) in SENT.items():
            began_s, count = time.monotonic(), int(part * share)
            asyncio.run(throw_all(server, kind, count, source))
            done += count
            mib = resident_bytes(process_id) >> 20
            print(f"{label:12}{kind:15}{count:9} inputs{time.monotonic() - began_s:8.1f} s{mib:7} MiB", flush=True)
        began_s, count = time.monotonic(), part - sum(int(part * share) for _, _, share in SENT.values())
        refused = sum(not refuses_or_takes(source) for _ in range(count))
        done += count
        print(f"{label:12}{'config.pbtxt':15}{count:9} inputs{time.monotonic() - began_s:8.1f} s, {refused} refused")
        first_bytes = first_bytes or resident_bytes(process_id)
    grown, serves = resident_bytes(process_id) - first_bytes, http_is_well(f"127.0.0.1:{server.ports['http']}")
    has_traceback = "Traceback" in server.log
    print(
        f"{done} inputs; serves: {serves}; tracebacks: {has_traceback}; grown by {grown >> 20} MiB, "
        f"workers have {worker_bytes(process_id) >> 20} MiB"
    )
    return serves and not has_traceback and grown < MAX_GROWTH_BYTES


def _end_of_log(server: RunningServer, size_bytes: int = 100_000) -> bytes:
    with server.log_path.open("rb") as log:
        log.seek(max(0, server.log_path.stat().st_size - size_bytes))
        return log.read()


def _is_listening(server: RunningServer) -> bool:
    try:
        return http_is_well(f"127.0.0.1:{server.ports['http']}")
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
