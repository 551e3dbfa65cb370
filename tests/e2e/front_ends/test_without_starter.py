"""A server whose front-end processes cannot be replaced: it says so, and serves all clients itself."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton
from certificates import make_certificate
from process_server import ProcessServer


def test_without_starter_and_front_ends_the_server_process_serves(folder: Path) -> None:
    certificate = make_certificate(folder)
    key = certificate.with_suffix(".key")
    tls = ["--grpc-use-ssl=true", f"--grpc-server-cert={certificate}", f"--grpc-server-key={key}"]
    with ProcessServer(folder, 2, "--load-model=echo", *tls) as server:
        server.wait_until_ready()
        front_ends = server.front_ends()
        os.kill(server.starter(), signal.SIGKILL)
        server.until(lambda: "no front-end process can be started any more" in server.log)
        assert server.infer("echo", 1)[0] == 200
        os.kill(front_ends[0], signal.SIGKILL)
        server.until(lambda: "it cannot be replaced" in server.log)
        assert server.infer("echo", 1)[0] == 200
        assert "itself serves all clients" not in server.log
        os.kill(front_ends[1], signal.SIGKILL)
        server.until(lambda: "itself serves all clients" in server.log)
        assert server.infer("echo", 5, 6)[0] == 200
        assert ask_behind_tls(server.ports["grpc"], certificate) == [[7, 8]]
        assert server.value("trireme_frontend_processes") == 0
        assert server.value("trireme_frontend_process_restarts_total") == 0
        assert "it is replaced" not in server.log
        assert server.interrupt(signal.SIGTERM) == 0


def test_a_starter_that_is_stopped_replaces_front_ends_all_the_same(folder: Path) -> None:
    with ProcessServer(folder, 2, "--load-model=echo") as server:
        server.wait_until_ready()
        before = server.front_ends()
        os.kill(server.starter(), signal.SIGSTOP)
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        server.until(lambda: server.value("trireme_frontend_processes") == 0)
        assert server.infer("echo", 5, 6)[0] == 200
        assert "has to go on" in server.log
        server.until(lambda: server.value("trireme_frontend_processes") == 2)
        os.kill(server.starter(), signal.SIGSTOP)
        assert server.interrupt(signal.SIGTERM) == 0


def ask_behind_tls(port: int, certificate: Path) -> list[list[int]]:
    given = triton.InferInput("IN", [1, 2], "INT32")
    given.set_data_from_numpy(np.array([[7, 8]], np.int32))
    with triton.InferenceServerClient(f"localhost:{port}", ssl=True, root_certificates=str(certificate)) as client:
        answer: list[list[int]] = client.infer("echo", [given]).as_numpy("OUT").tolist()
    return answer
