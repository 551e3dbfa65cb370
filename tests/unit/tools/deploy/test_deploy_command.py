"""`trireme deploy` before a server starts: its words, its table, its refusals and what it writes."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
from tiny_models import cached, tiny_causal_lm

from trireme.cli import main as trireme_command
from trireme.cli.command_line import CommandEnded
from trireme.cli.deployment.arguments import parse_arguments
from trireme.tools.deploy.checks.task import TASKS
from trireme.tools.deploy.options import DeployError
from trireme.tools.deploy.sizes import size_text


@pytest.fixture(scope="module")
def model() -> str:
    return str(cached("opt"))


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIREME_DEVICES", "cpu")
    return tmp_path


def deploy(*words: str) -> int:
    return trireme_command.main(["deploy", *words])


def test_ctrl_c_while_the_command_is_read_from_disk_shows_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_arguments: Sequence[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("trireme.cli.deployment.steps.run_deploy", interrupted)
    assert deploy("m") == 130
    assert capsys.readouterr().err == "\nStopped.\n"


def test_words_of_the_server_follow_after_two_dashes_and_ports_need_none() -> None:
    options, server_words = parse_arguments(["m", "--http-port", "9000", "--batch=2", "--", "--log-verbose=1"])
    assert (options.model, options.batch_size) == ("m", 2)
    assert server_words == ["--http-port=9000", "--log-verbose=1"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "the following arguments are required: MODEL"),
        (["m", "--log-verbose=1"], "unrecognized arguments: --log-verbose=1 (options of the server go after --)"),
        (["m", "--dtype", "int4"], "invalid choice: 'int4'"),
        (["m", "--batch", "0"], "must be at least 1, found 0"),
        (["m", "--batch", "many"], "must be a whole number, found 'many'"),
    ],
)
def test_mistakes_are_told_in_a_line(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CommandEnded) as end:
        parse_arguments(words)
    assert end.value.exit_code == 1
    assert told in capsys.readouterr().err


def test_help_exits_0_and_fits_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert deploy("--help") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: trireme deploy MODEL [options] [-- server options]")
    assert max(map(len, printed.splitlines())) <= 80
    for part in (*TASKS, "--http-port PORT", "of HTTP; default: 8000", "HF_HUB_OFFLINE", "exit codes:"):
        assert part in printed


def test_a_wrong_flag_of_the_server_is_told_before_anything_is_looked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert deploy("owner/nowhere", "--", "--http-prot=1") == 1
    assert "Did you mean '--http-port'?" in capsys.readouterr().err


def test_dry_run_prints_the_table_and_the_files_and_writes_nothing(
    model: str, working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy(model, "--dry-run", "--dtype", "bfloat16", "--memory", "2GiB") == 0
    printed = capsys.readouterr().out
    assert f"{model}, from this folder, is served as 'opt'" in printed
    for row in (
        "| weights, 263.8 K in bfloat16                         |",
        "| conversion from float32 while it loads               |",
        "| keys and values, 8 x 1024 tokens                     |",
        "| free on cpu (given by --memory: 2,147,483,648 bytes) | 2.0 GiB   |",
    ):
        assert row in printed
    assert "# model_repository/opt/config.pbtxt\n" in printed
    assert 'backend: "llm"' in printed
    assert list(working_folder.iterdir()) == []


def test_a_model_that_does_not_fit_exits_4_and_force_goes_on(
    model: str, working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy(model, "--no-serve", "--memory", "500M") == 4
    told = capsys.readouterr().err
    assert f"error: '{model}' will not fit: it needs about 625.1 MiB, and cpu has 500.0 MiB" in told
    assert "125.1 MiB are missing" in told
    assert not (working_folder / "model_repository").exists()
    assert deploy(model, "--no-serve", "--memory", "500M", "--force") == 0
    assert (working_folder / "model_repository/opt/config.pbtxt").exists()


def test_deploying_twice_says_so_and_keeps_edits(
    model: str, working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy(model, "--no-serve") == 0
    printed = capsys.readouterr().out
    assert "wrote model_repository/opt/config.pbtxt" in printed
    assert "Serve it with: trireme serve model_repository" in printed
    assert deploy(model, "--no-serve") == 0
    assert "is deployed already; nothing had to be written" in capsys.readouterr().out
    config = working_folder / "model_repository/opt/config.pbtxt"
    config.write_text(config.read_text() + "# mine\n")
    assert deploy(model, "--no-serve", "--batch", "4") == 0
    printed = capsys.readouterr()
    assert "kept as it is: config.pbtxt" in printed.out
    assert printed.err.splitlines()[-1].startswith(
        "warning: 'model_repository/opt/config.pbtxt' has been edited and was"
    )
    assert config.read_text().endswith("# mine\n")
    assert deploy(model, "--no-serve", "--batch", "4", "--overwrite") == 0
    assert 'key: "max_sequences" value: { string_value: "4" }' in config.read_text()
    assert trireme_command.main(["config", "check", "model_repository"]) == 0


def test_other_options_take_effect_where_nobody_edited(
    model: str, working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy(model, "--no-serve") == 0
    assert deploy(model, "--no-serve", "--dtype=float16", "--task=text-generation", "--trust-remote-code") == 0
    assert "wrote anew model_repository/opt/config.pbtxt" in capsys.readouterr().out
    config = (working_folder / "model_repository/opt/config.pbtxt").read_text()
    for key, value in (("dtype", "float16"), ("task", "text-generation"), ("trust_remote_code", "true")):
        assert f'key: "{key}" value: {{ string_value: "{value}" }}' in config


def test_other_models_of_the_repository_are_told_of_in_the_table(
    model: str, working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy(model, "--no-serve", "--name", "first") == 0
    assert "other model" not in capsys.readouterr().out
    assert deploy(model, "--no-serve", "--name", "second") == 0
    size = size_text(Path(model, "model.safetensors").stat().st_size)
    row = r"\| not counted: files of {} loaded from the repository +\| {} +\|"
    assert re.search(row.format("1 other model", size), capsys.readouterr().out)
    hub_model = working_folder / "model_repository/hub-model"
    hub_model.mkdir()
    (hub_model / "config.pbtxt").write_text('parameters { key: "model" value: { string_value: "me/tiny" } }')
    (working_folder / "model_repository/notes").mkdir()
    assert deploy(model, "--dry-run", "--name", "second") == 0
    assert re.search(row.format("2 other models", f"{size}, 1 unknown"), capsys.readouterr().out)
    assert deploy(model, "--dry-run", "--name", "second", "--", "--model-control-mode=explicit") == 0
    assert "other model" not in capsys.readouterr().out


@pytest.mark.parametrize("repository", ["afile", "afile/below", "/proc/nowhere"])
def test_a_repository_that_cannot_be_written_is_told_in_a_line(
    model: str, working_folder: Path, repository: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (working_folder / "afile").touch()
    assert deploy(model, "--no-serve", "--repository", repository) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: cannot write '{repository}/opt")
    assert line.endswith("; choose another --repository")


def test_a_name_that_is_taken_exits_5(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert deploy(model, "--no-serve", "--name", "chat") == 0
    assert deploy(str(cached("llama")), "--no-serve", "--name", "chat") == 5
    assert f"'model_repository/chat' is there already for '{model}'" in capsys.readouterr().err


def test_a_folder_that_is_no_model_exits_2(working_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (working_folder / "empty").mkdir()
    assert deploy("empty") == 2
    assert "cannot be served: the folder is empty" in capsys.readouterr().err
    os.mkfifo(working_folder / "empty/config.json")
    assert deploy("empty") == 2
    assert "(it is not a regular file), which says what the model is: put that" in capsys.readouterr().err
    (working_folder / "empty/config.json").unlink()
    (working_folder / "empty/config.json").write_text('{"architectures"')
    assert deploy("empty") == 2
    assert "config.json' is not JSON (" in capsys.readouterr().err
    (working_folder / "empty/config.json").write_text(json.dumps({"architectures": ["OPTForCausalLM"]}))
    assert deploy("./empty") == 2
    assert "'./empty' cannot be served: there are no weights" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["", "--no-serve"], 1, "MODEL is empty: give the id of a model on the hub"),
        (["~nobody-at-all/m", "--no-serve"], 2, "there is no folder '~nobody-at-all/m', and it is not an id"),
        (["MODEL", "--no-serve", "--revision=v1"], 1, "--revision v1 is for models of the hub"),
        (["MODEL/config.json"], 2, "is a file of a model; give its folder: trireme deploy "),
        (["MODEL", "--memory=a lot"], 1, "--memory 'a lot' is not an amount of memory such as 24GiB"),
        (["MODEL", "--no-serve", "--task=image-classification"], 2, "has no class of the architecture 'opt' for that"),
        (["MODEL", "--eject", "--no-serve", "--task=fill-mask"], 1, "is asked for fill-mask. Leave --eject out"),
    ],
)
def test_what_cannot_be_done_is_told_before_anything_is_written(
    model: str, working_folder: Path, words: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy(*(word.replace("MODEL", model) for word in words)) == code
    assert told in capsys.readouterr().err
    assert list(working_folder.iterdir()) == []


def test_a_model_without_a_tokenizer_is_refused_and_force_goes_on_with_a_warning(
    working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tiny_causal_lm(working_folder / "mute", "opt")
    for file in folder.glob("tokenizer*"):
        file.unlink()
    assert deploy("mute", "--no-serve") == 2
    assert capsys.readouterr().err.startswith("error: 'mute' cannot be served: it has no tokenizer")
    assert not (working_folder / "model_repository").exists()
    assert deploy("mute", "--no-serve", "--force") == 0
    assert capsys.readouterr().err.startswith("warning: 'mute': it has no tokenizer")
    assert (working_folder / "model_repository/mute/config.pbtxt").exists()


def test_a_task_that_the_weights_were_not_made_for_is_warned_of(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert deploy(model, "--no-serve", "--task=question-answering") == 0
    told = capsys.readouterr().err
    assert "it was saved as OPTForCausalLM, and its files have no weights for the last layer" in told
    assert deploy(model, "--no-serve") == 0
    assert capsys.readouterr().err == ""


def test_a_mistake_in_the_servers_options_takes_two_lines(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert deploy(model, "--http-port=9000", "--grpc-port=9000") == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("trireme deploy: The server cannot listen to HTTP requests and GRPC requests at the same")
    assert second == "See: trireme serve --help"
    assert deploy(model, "--", "--help") == 0
    assert "--log-verbose <integer>" in capsys.readouterr().out


def test_a_device_that_is_not_there_exits_1(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert deploy(model, "--device", "cuda:0") == 1
    assert "this machine has no such device; it has cpu" in capsys.readouterr().err


def test_devices_that_the_server_is_told_of_are_counted_with(
    model: str, working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (model, "--no-serve", "--device", "cuda", "--", "--devices=cuda:1@500MiB")
    assert deploy(*words) == 4
    assert "cuda:0 has 500.0 MiB" in capsys.readouterr().err
    assert deploy(model, "--no-serve", "--", "--devices=hpu:1") == 0
    config = (working_folder / "model_repository/opt/config.pbtxt").read_text()
    assert 'key: "device" value: { string_value: "hpu:0" }' in config


def test_the_guide_has_every_option_and_its_lines_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    guide = (Path(__file__).resolve().parents[4] / "docs/deploy.md").read_text(encoding="utf-8")
    assert deploy("--help") == 0
    options = set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    assert set(re.findall(r"^(--[a-z-]+) ", guide, re.MULTILINE)) == {
        option for option in options if not option.endswith(("-port", "-address"))
    }
    lines = re.findall(r"^trireme deploy (.*)$", guide, re.MULTILINE)
    assert lines
    for line in lines:
        parse_arguments(shlex.split(line))


def test_the_guide_has_every_exit_code() -> None:
    guide = (Path(__file__).resolve().parents[4] / "docs/deploy.md").read_text(encoding="utf-8")
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", guide, re.MULTILINE)}
    assert codes == {0, 130, DeployError.exit_code, *(kind.exit_code for kind in DeployError.__subclasses__())}
