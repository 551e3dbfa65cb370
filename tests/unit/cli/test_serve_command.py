"""What `trireme serve` says to a person before it serves."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trireme import __version__
from trireme.cli import main as trireme_command
from trireme.cli import serve
from trireme.cli import tritonserver as tritonserver_command
from trireme.config.model_config import ModelConfig
from trireme.config.options.server import ServerOptions
from trireme.proto import model_config_pb2


def test_without_a_folder_it_explains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert trireme_command.main(["serve"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("trireme serve needs a folder to serve")
    assert "examples/model_repository" in printed


def test_model_in_place_of_its_repository_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "models/mine/1").mkdir(parents=True)
    assert trireme_command.main(["serve", str(tmp_path / "models/mine")]) == 1
    printed = capsys.readouterr().err
    assert "is a model, and not the folder around it" in printed
    assert printed.endswith(f" Say\n  trireme serve {tmp_path / 'models'}\n")
    (tmp_path / "models/mine/config.pbtxt").touch()
    assert trireme_command.main(["serve", str(tmp_path / "models/mine/config.pbtxt")]) == 1
    assert capsys.readouterr().err.endswith(f" Say\n  trireme serve {tmp_path / 'models'}\n")


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("models/mine/config.pbtxt", "is a file, and no folder. {what} Say\n  trireme serve models"),
        ("models/mine/1/model.py", "is a file, and no folder. {what} Say\n  trireme serve models"),
        ("notes.txt", "is a file, and no folder. {what}"),
        ("modles", "there is no folder 'modles'. {what} Did you mean 'models'?"),
        ("somewhere", "there is no folder 'somewhere'. {what}"),
        (
            "facebook/opt-125m",
            "{what} A model of the Hugging Face Hub is served by\n  trireme deploy facebook/opt-125m",
        ),
        ("/no/such/folder", "there is no folder '/no/such/folder'. {what}"),
    ],
)
def test_what_is_no_folder_is_told_with_what_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], word: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models/mine/1").mkdir(parents=True)
    for name in ("models/mine/config.pbtxt", "models/mine/1/model.py", "notes.txt"):
        (tmp_path / name).touch()
    assert trireme_command.main(["serve", word]) == 1
    what = "A repository is a folder with one folder per model in it."
    assert capsys.readouterr().err.endswith(told.format(what=what) + "\n")


def test_empty_folder_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trireme_command.main(["serve", str(tmp_path)]) == 1
    assert f"there is no model in '{tmp_path}'" in capsys.readouterr().err


def test_a_folder_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)  # tests run as root, who may read everything
    problem = serve.folder_problem(ServerOptions(model_repository=(str(tmp_path),)))
    assert problem == f"error: the folder '{tmp_path}' cannot be read: Permission denied"


def test_empty_folder_may_fill_later_where_models_can_come(tmp_path: Path) -> None:
    assert serve.folder_problem(ServerOptions(model_repository=(str(tmp_path),), model_control_mode="poll")) is None


@pytest.mark.parametrize(
    ("flag", "more"),
    [
        ("http-port", []),
        ("grpc-port", []),
        ("metrics-port", []),
        ("sagemaker-port", ["--allow-sagemaker=true"]),
        ("vertex-ai-port", ["--allow-vertex-ai=true"]),
    ],
)
def test_taken_port_is_told_before_anything_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, more: list[str]
) -> None:
    (tmp_path / "mine/1").mkdir(parents=True)
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert trireme_command.main(["serve", str(tmp_path), f"--{flag}={port}", *more]) == 1
        printed = capsys.readouterr().err
        assert tritonserver_command.main([f"--model-repository={tmp_path}", f"--{flag}={port}", *more]) == 1
        assert capsys.readouterr().err == printed
    assert f"0.0.0.0:{port} (--{flag})" in printed
    assert f"--{flag} " in printed.splitlines()[-1]


def test_wrong_flag_shows_its_neighbour_and_not_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert trireme_command.main(["serve", "x", "--htp-port=1"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "trireme serve: unrecognized option '--htp-port'. Did you mean '--http-port'?",
        "'trireme serve --help' lists every option.",
    ]


@pytest.mark.parametrize(
    ("word", "lines"),
    [
        (
            "--http-port=four",
            ['Bad option: "--http-port".', "Invalid option value. Got four", "  --http-port <integer>"],
        ),
        (
            "--allow-http=maybe",
            ['Bad option: "--allow-http".', "invalid value for bool option: maybe", "  --allow-http <boolean>"],
        ),
        (
            "--trace-config=rate=x",
            ['Bad option: "--trace-config rate".', "Invalid option value. Got x", "  --trace-config <"],
        ),
    ],
)
def test_wrong_value_shows_what_the_option_takes(
    capsys: pytest.CaptureFixture[str], word: str, lines: list[str]
) -> None:
    assert trireme_command.main(["serve", "x", word]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[:2] == lines[:2]
    assert told[2].startswith(lines[2])
    assert told[3].startswith("\t")
    assert told[-1] == "'trireme serve --help' lists every option."


def test_greeting_counts_models_and_not_their_versions() -> None:
    inputs = ([{"name": name, "data_type": "TYPE_INT32", "dims": [1]}] for name in ("old", "new"))
    messages = [model_config_pb2.ModelConfig(name="m", input=entries) for entries in inputs]
    versions = [ModelConfig.from_message(message) for message in messages]
    other = ModelConfig.from_message(model_config_pb2.ModelConfig(name="other"))
    lines = serve.greeting_lines(ServerOptions(), [*versions, other])
    assert any("serves 2 models." in line for line in lines)
    (line,) = (line for line in lines if "/v2/models/m/" in line)
    assert '"new"' in line
    assert any("serves 1 model." in line for line in serve.greeting_lines(ServerOptions(), versions))


def test_greeting_says_that_other_machines_can_reach_it() -> None:
    sentence = "It listens on all interfaces"
    assert any(sentence in line for line in serve.greeting_lines(ServerOptions(), []))
    alone = ServerOptions(http_address="127.0.0.1", grpc_address="127.0.0.1")
    assert not any(sentence in line for line in serve.greeting_lines(alone, []))


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        (ServerOptions(), "--http-address 127.0.0.1 --grpc-address 127.0.0.1"),
        (ServerOptions(http_address="127.0.0.1"), "--grpc-address 127.0.0.1"),
        (ServerOptions(allow_grpc=False), "--http-address 127.0.0.1"),
        (
            ServerOptions(http_address="127.0.0.1", grpc_address="127.0.0.1", metrics_address="0.0.0.0"),
            "--metrics-address 127.0.0.1",
        ),
    ],
)
def test_greeting_names_the_flags_that_keep_it_here(options: ServerOptions, flags: str) -> None:
    assert any(line.endswith(f"To keep it here: {flags}") for line in serve.greeting_lines(options, []))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (ServerOptions(), ""),
        (ServerOptions(http_address="127.0.0.1"), ""),
        (ServerOptions(http_port=9000), " -u localhost:9000"),
        (ServerOptions(http_address="10.0.0.7", http_use_ssl=True), " -u https://10.0.0.7:8000"),
        (ServerOptions(allow_http=False), " --grpc"),
        (ServerOptions(allow_http=False, grpc_port=9001), " --grpc -u localhost:9001"),
    ],
)
def test_greeting_without_a_model_says_how_one_is_loaded(options: ServerOptions, words: str) -> None:
    def told(**changes: Any) -> list[str]:
        lines = serve.greeting_lines(replace(options, **changes), [])
        return [line for line in lines if line.startswith("No model is loaded")]

    (line,) = told(model_control_mode="explicit")
    assert f"'trireme models load NAME{words}' loads one; --load-model=NAME loads it at the start." in line
    (line,) = told(model_control_mode="explicit", allow_http=False, allow_grpc=False)
    assert line == "No model is loaded: --load-model=NAME loads it at the start."
    assert told() == told(model_control_mode="explicit", load_model=("broken",)) == []


def test_tritonserver_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert tritonserver_command.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"trireme {__version__} ")
