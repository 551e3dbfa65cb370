"""Two processes with the variables that mpirun sets: one serves, the other starts the ranks of its models."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer, port_flags, three_ports
from tiny_language_models import TinyModel, build
from tiny_tokenizers import byte_level, write_folder

PROMPT = [5, 9, 17, 40, 3, 88, 61]
CONFIG = 'backend: "llm"\nparameters { key: "dtype" value: { string_value: "float32" } }\n'
ALONE = 'parameters { key: "tensor_parallel" value: { string_value: "1" } }\n'
COMMAND = [str(Path(sys.executable).with_name("tritonserver")), "--model-repository=model_repository"]

Started = tuple[RunningServer, "subprocess.Popen[bytes]", TinyModel]


def variables(rank: int, folder: Path) -> dict[str, str]:
    return {
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_COMM_WORLD_RANK": str(rank),
        "PMIX_NAMESPACE": f"prterun-{folder}@1",
    }


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    folder = tmp_path_factory.mktemp("mpi")
    for name, config in {"divided": CONFIG, "alone": CONFIG + ALONE}.items():
        version = folder / "model_repository" / name / "1"
        model = build("llama", version)
        write_folder(version, byte_level())
        (version.parent / "config.pbtxt").write_text(config)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables(0, folder).items():
            patch.setenv(name, value)
        server = RunningServer(folder, "--devices=cpu")
    environ = {**os.environ, **variables(1, folder)}
    with server, subprocess.Popen(COMMAND, cwd=folder, env=environ) as other:
        server.wait_until_listening(timeout_s=110)
        yield server, other, model
        other.kill()


def ranks_below(pid: int) -> list[int]:
    """The children of a process that are ranks and have not ended."""
    listing = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = {int(child): Path(f"/proc/{child}/stat").read_text() for child in listing}
    return [child for child, text in found.items() if "(trireme-rank)" in text and ") Z" not in text]


def text_of(server: RunningServer, name: str) -> str:
    body = {"input_ids": PROMPT, "max_tokens": 8, "ignore_eos": True}
    status, _, text = server.ask("POST", f"/v2/models/{name}/generate", body)
    assert status == 200, text
    return str(json.loads(text)["text_output"])


def test_the_first_process_serves_and_the_other_has_a_rank(started: Started) -> None:
    server, other, model = started
    wanted = byte_level().decode(model.continuation(PROMPT, 8))
    assert [text_of(server, name) for name in ("divided", "alone")] == [wanted] * 2
    assert len(ranks_below(other.pid)) == 1
    assert server.log.count("runs on 2 ranks") == 1
    assert server.log.count("runs on the CPU with PyTorch") == 1


def test_a_rank_that_is_killed_is_started_anew(started: Started) -> None:
    server, other, _ = started
    (victim,) = ranks_below(other.pid)
    os.kill(victim, signal.SIGKILL)
    server.until(lambda: ranks_below(other.pid) not in ([], [victim]), timeout_s=120)
    server.until(lambda: server.status("/v2/models/divided/ready") == 200, timeout_s=120)
    assert text_of(server, "divided") == text_of(server, "alone")


def test_the_others_end_with_the_server(started: Started) -> None:
    server, other, _ = started
    (rank,) = ranks_below(other.pid)
    server.interrupt(signal.SIGTERM)
    assert other.wait(timeout=20) == 0
    assert not Path(f"/proc/{rank}").exists()


class ServerUnderMpirun(RunningServer):
    """Both processes started by mpirun, as its users do; `process` is mpirun itself."""

    def __init__(self, folder: Path) -> None:
        self.ports = three_ports()
        mpirun = ["mpirun", "-n", "2", "--allow-run-as-root", "--oversubscribe"]
        self._start(folder, [*mpirun, *COMMAND, "--devices=cpu", *port_flags(self.ports)])

    def __exit__(self, *error: Any) -> None:
        self.process.terminate()  # which it passes on; killed, it would leave both behind
        try:
            self.process.wait(30)
        finally:
            super().__exit__(*error)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs Open MPI")
def test_mpirun_starts_a_server_and_the_place_of_its_second_rank(tmp_path: Path) -> None:
    version = tmp_path / "model_repository" / "divided" / "1"
    model = build("llama", version)
    write_folder(version, byte_level())
    (version.parent / "config.pbtxt").write_text(CONFIG)
    with ServerUnderMpirun(tmp_path) as server:
        server.wait_until_listening(timeout_s=110)
        assert text_of(server, "divided") == byte_level().decode(model.continuation(PROMPT, 8))
        (rank,) = [rank for process in processes_below(server.process.pid) for rank in ranks_below(process)]
        os.kill(rank, signal.SIGKILL)
        server.until(lambda: "rank 1 of 2" in server.log, timeout_s=120)
        server.until(lambda: server.status("/v2/models/divided/ready") == 200, timeout_s=120)
        assert text_of(server, "divided") == byte_level().decode(model.continuation(PROMPT, 8))


def processes_below(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
