"""The commands before a server starts: help, mistakes, launchers, and the words for people."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest

from trireme import __version__
from trireme.cli import main as trireme_command
from trireme.cli import mpi, serve
from trireme.cli import tritonserver as tritonserver_command
from trireme.config.options.server import ServerOptions, server_options


def test_tritonserver_help_prints_usage_to_stderr_and_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert tritonserver_command.main(["--help"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("Usage: tritonserver [options]\n")


def test_usage_has_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    tritonserver_command.main(["--help"])
    lines = capsys.readouterr().err.splitlines()
    flags = {line.split()[0] for line in lines if line.startswith("  --")}
    assert {f"--{entry.flag}" for entry in server_options()} <= flags
    assert {"--help", "--model-store", "--strict-model-config", "--trace-file"} <= flags


def test_mistake_prints_usage_then_the_reason_and_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert tritonserver_command.main(["--model-repository=x", "--http-port=abc"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("Usage: tritonserver [options]\n")
    assert printed.endswith('\nBad option: "--http-port".\nInvalid option value. Got abc\n')


def test_missing_repository_is_said_without_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert tritonserver_command.main([]) == 1
    assert capsys.readouterr().err == (
        "error: creating server: Invalid argument - --model-repository must be specified\n"
    )


@pytest.mark.parametrize("place", ["gs://bucket/models", "s3://bucket/models"])
def test_cloud_storage_is_named_as_what_is_not_read(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = f"the repository '{place}' is in cloud storage, which is not read: copy it into a folder"
    assert tritonserver_command.main([f"--model-repository={place}"]) == 1
    assert words in capsys.readouterr().err
    monkeypatch.setenv("AIP_MODE", "PREDICTION")
    monkeypatch.setenv("AIP_STORAGE_URI", place)
    assert tritonserver_command.main([]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("environ", [{}, {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}])
def test_one_process_under_mpirun_is_a_server(environ: dict[str, str]) -> None:
    with ExitStack() as links:
        assert mpi.take_part(environ, links) is None
    assert not any(name.startswith("TRIREME") for name in environ)


@pytest.mark.parametrize("words", ["OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK", "PMI_SIZE PMI_RANK"])
def test_processes_of_mpirun_know_which_they_are(words: str) -> None:
    environ = dict(zip(words.split(), ("4", "3"), strict=True))
    assert (mpi.process_count(environ), mpi.process_rank(environ)) == (4, 3)


def test_trireme_without_words_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert trireme_command.main([]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Usage: trireme COMMAND")
    for name in trireme_command.COMMANDS:
        assert f"\n  {name} " in printed


@pytest.mark.parametrize("words", [["serv"], ["help", "srve"]])
def test_unknown_command_gets_the_nearest_name(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert trireme_command.main(words) == 1
    printed = capsys.readouterr()
    assert f"there is no command '{words[-1]}'. Did you mean 'trireme serve'?" in printed.err
    assert printed.out == ""


@pytest.mark.parametrize("words", [["help"], ["help", "help"], ["--help"]])
def test_help_of_itself_lists_the_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert trireme_command.main(words) == 0
    assert capsys.readouterr().out.startswith("Usage: trireme COMMAND")


@pytest.mark.parametrize("words", [["version"], ["--version"]])
def test_version(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert trireme_command.main(words) == 0
    assert capsys.readouterr().out.startswith(f"trireme {__version__} ")


@pytest.mark.parametrize("words", [["help", "serve"], ["serve", "--help"], ["serve", "-h"]])
def test_help_of_serve_goes_to_stdout_and_exits_0(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert trireme_command.main(words) == 0
    assert capsys.readouterr().out.startswith("Usage: trireme serve [REPOSITORY ...] [options]\n")


def test_serve_names_the_folder_that_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert trireme_command.main(["serve", "/nowhere/models"]) == 1
    assert "there is no folder '/nowhere/models'" in capsys.readouterr().err


def test_greeting_says_where_the_server_can_be_reached() -> None:
    lines = serve.greeting_lines(ServerOptions(http_port=9000, allow_grpc=False, metrics_address="::1"), [])
    assert "  HTTP     http://localhost:9000" in lines
    assert "  metrics  http://[::1]:8002/metrics" in lines
    assert not any("gRPC" in line for line in lines)


@pytest.mark.parametrize(
    ("options", "is_said"),
    [
        (ServerOptions(), True),
        (ServerOptions(http_address="127.0.0.1", grpc_address="127.0.0.2"), False),
        (ServerOptions(http_address="localhost", grpc_address="::1"), False),
        (ServerOptions(http_address="127.0.0.1", grpc_address="127.0.0.1", metrics_address="10.0.0.7"), True),
        (ServerOptions(http_address="127.0.0.1", allow_grpc=False), False),
        (ServerOptions(http_address="models.example.com", allow_grpc=False), True),
        (ServerOptions(api_keys="keys.toml"), False),
    ],
)
def test_greeting_says_where_everybody_may_use_the_server(options: ServerOptions, is_said: bool) -> None:
    lines = [line for line in serve.greeting_lines(options, []) if line.startswith("No keys are asked for")]
    assert len(lines) == is_said


def test_output_that_nobody_reads_on_ends_the_command_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    program = "import sys; from trireme.cli.main import main; sys.exit(main(['keys', '--help']))"
    done = subprocess.run([sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_a_command_does_not_read_the_others() -> None:
    program = (
        "import sys; from trireme.cli.main import main; main(['version'])\n"
        "print(*[name for name in sys.modules if name.startswith('trireme.cli.')], 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "trireme.cli.endings trireme.cli.main trireme.cli.version False"
