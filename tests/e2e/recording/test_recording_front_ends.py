"""Calls that front-end processes have read, recorded and played back over the protocol that they came with."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient

from trireme.tools.record.reading import RecordingReader

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_calls_keep_their_protocol(server_with_front_ends: Any, tmp_path: Path, trireme: Run) -> None:
    server, path = server_with_front_ends, tmp_path / "calls.rec"
    with server.recording(path, "--limit", "2"):
        for module, url in ((httpclient, server.url), (grpcclient, server.grpc_url)):
            given = module.InferInput("IN", [1, 1], "INT32")
            given.set_data_from_numpy(np.array([[4]], np.int32))
            with module.InferenceServerClient(url) as client:
                client.infer("double", [given])
    recording = RecordingReader(str(path))
    protocols = [call.protocol for _, call in recording.calls()]
    recording.close()
    assert protocols == ["http", "grpc"]
    replay = trireme("replay", path, "--url", server.url, "--grpc-url", server.grpc_url)
    assert replay.returncode == 0, replay.stderr
