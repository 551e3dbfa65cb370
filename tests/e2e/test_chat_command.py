"""`trireme chat` as people and scripts use it: against a running server, with a server of its own, on a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from running_server import RunningServer
from waiting import until

TRIREME = str(Path(sys.executable).with_name("trireme"))
MODELS = Path(__file__).parents[1] / "contract/openai_api/repository"
EXAMPLES = Path(__file__).parents[2] / "examples/model_repository"
COUNTS = re.compile(r"\[(\d+) tokens in, (\d+) out, [\d.]+ tokens/s, first after [\d.]+ s\]")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("chat")
    for name in ("talker", "rhymer"):
        shutil.copytree(MODELS / name, folder / "model_repository" / name)
    with RunningServer(folder) as running:
        running.wait_until_listening()
        yield running


def url_of(server: RunningServer) -> str:
    return f"http://127.0.0.1:{server.ports['http']}"


def chat(*words: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TRIREME, "chat", *words], input=lines, capture_output=True, text=True, timeout=90, check=False
    )


def test_piped_questions_are_answered_without_anything_else(server: RunningServer) -> None:
    done = chat("talker", "--url", url_of(server), lines="one two\n\n/reset\nthree\n")
    assert (done.returncode, done.stdout) == (0, "one0 two0 \nthree0 \n")
    assert COUNTS.findall(done.stderr) == [("2", "2"), ("1", "1")]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("file", "'file' is a file, and no folder"),
        ("./file", "'./file' is a file, and no folder"),
        ("pipe", "'pipe' is no folder"),
        ("broken", "'broken' is a link that leads nowhere, and no folder"),
        ("./broken", "'./broken' is a link that leads nowhere, and no folder"),
        ("missing", "there is no folder 'missing'"),
        ("~nobody-at-all", "there is no folder '~nobody-at-all'"),
        ("", "the name of the model is empty: give that of one the server has, or a folder, or leave it out"),
    ],
)
def test_a_path_that_is_no_folder_is_told(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "broken").symlink_to("nowhere")
    words = [TRIREME, "chat", name, "--url", "http://127.0.0.1:9"]
    done = subprocess.run(words, cwd=tmp_path, input="", capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith(f"{told}\n"), done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can ask as another user")
def test_a_folder_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    code = "import os, sys; from trireme.cli.chat import main; os.setuid(65534); sys.exit(main(['.']))"
    tmp_path.chmod(0o700)
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=tmp_path, input="", capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stderr) == (1, "error: the folder '.' cannot be read: Permission denied\n")


def test_bytes_that_are_no_text_are_marked(server: RunningServer) -> None:
    command = [TRIREME, "chat", "talker", "--url", url_of(server)]
    done = subprocess.run(command, input=b"one\xff two\n", capture_output=True, timeout=90, check=False)
    assert (done.returncode, done.stdout.decode()) == (0, "one\ufffd0 two0 \n")


@pytest.mark.usefixtures("fresh_interpreters")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_its_own_server_ends_with_it_however_it_is_told_to(number: signal.Signals, tmp_path: Path) -> None:
    with chatting(tmp_path) as (running, server):
        running.send_signal(number)
        assert running.wait(60) == 128 + number
    assert not Path(f"/proc/{server}").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells a child of its parent's end")
@pytest.mark.usefixtures("fresh_interpreters")
def test_its_own_server_ends_where_it_is_killed(tmp_path: Path) -> None:
    with chatting(tmp_path) as (running, server):
        running.kill()
    until(lambda: has_ended(server), 60)


@contextmanager
def chatting(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A chat with a server of its own, in the midst; with that server's number."""
    shutil.copytree(MODELS / "talker", folder / "talker")
    command = [TRIREME, "chat", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(b"one\n")
        running.stdin.flush()
        assert running.stdout.readline() == b"one0 \n"
        (server,) = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        yield running, server


def has_ended(process: str) -> bool:
    """Also where nobody has asked how yet."""
    try:
        return "\nState:\tZ" in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return True


def test_conversation_goes_on_until_it_is_reset(server: RunningServer) -> None:
    lines = "/system Be kind.\nHi\nGo\n/reset\nNo\n/exit\nnever asked\n"
    done = chat("rhymer", "--url", url_of(server), lines=lines)
    assert done.stdout == (
        "System: Be kind.\nUser: Hi\nAssistant:\n"
        "System: Be kind.\nUser: Hi\nAssistant: System: Be kind.\nUser: Hi\nAssistant:\nUser: Go\nAssistant:\n"
        "System: Be kind.\nUser: No\nAssistant:\n"
    )
    assert "tokens/s" in done.stderr


def test_options_reach_the_model(server: RunningServer) -> None:
    done = chat("talker", "--url", url_of(server), "--max-tokens", "7", "--temperature", "0.5", lines="options\n")
    assert done.stdout == '{"max_tokens": 7, "temperature": 0.5}\n'


def test_error_of_an_answer_does_not_end_the_chat(server: RunningServer) -> None:
    done = chat("talker", "--url", url_of(server), lines="fail\none\n")
    assert (done.returncode, done.stdout) == (1, "one0 \n")
    assert "error: 'temperature' is too hot" in done.stderr


def test_unknown_command_is_told(server: RunningServer) -> None:
    assert "There is no command /rest" in chat("talker", "--url", url_of(server), lines="/rest\n").stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["nobody"], "has no model 'nobody' that writes texts; it has: rhymer, talker"),
        (["talkr"], "has no model 'talkr' that writes texts; did you mean 'talker'?"),
        ([], "say which model: rhymer, talker"),
        (["./nowhere"], "there is no folder './nowhere'"),
    ],
)
def test_model_that_cannot_be_talked_to(server: RunningServer, words: list[str], reason: str) -> None:
    done = chat(*words, "--url", url_of(server))
    assert done.returncode == 1
    assert reason in done.stderr


def test_server_that_is_not_there() -> None:
    done = chat("--url", "http://127.0.0.1:9")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no server answers at http://127.0.0.1:9: Connection refused\n" in done.stderr
    assert "'trireme chat FOLDER' starts one for this chat" in done.stderr


@pytest.mark.parametrize("is_single_model", [True, False])
def test_folder_gets_a_server_of_its_own(tmp_path: Path, is_single_model: bool) -> None:
    shutil.copytree(MODELS / "talker", tmp_path / "models" / "talker")
    shutil.copytree(MODELS / "rhymer", tmp_path / "models" / "rhymer")
    words = [str(tmp_path / "models" / "talker")] if is_single_model else [str(tmp_path / "models"), "talker"]
    done = chat(*words, lines="one\n")
    assert (done.returncode, done.stdout) == (0, "one0 \n"), done.stderr
    assert done.stderr.startswith(f"loading {Path(words[0]).name}\n")


def test_plain_folder_is_served_as_it_would_be_deployed(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "scribe" / "1", tmp_path / "scribe")
    done = chat(str(tmp_path / "scribe"), "--temperature", "0", lines="Who are you?\n")
    assert done.returncode == 0, done.stderr
    assert "I am scribe" in done.stdout
    assert done.stderr.startswith('scribe: the engine for language models serves it (backend "llm")\nloading scribe\n')


def test_folder_of_a_model_without_a_configuration_is_served_as_the_one_model_that_it_is(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "scribe" / "1", tmp_path / "scribe" / "2")
    done = chat(str(tmp_path / "scribe"), "--temperature", "0", lines="Who are you?\n")
    assert done.returncode == 0, done.stderr
    assert "I am scribe" in done.stdout
    assert done.stderr.startswith('scribe: the engine for language models serves it (backend "llm")\n')


def test_plain_folder_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[]")
    done = chat(str(tmp_path), lines="Who are you?\n")
    assert (done.returncode, done.stderr) == (1, f"error: '{tmp_path / 'config.json'}' does not hold an object\n")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("config.json", "it has weights but no config.json: copy that from the model it was made of"),
        ("model.safetensors", "scribe has no weights: neither model.safetensors nor pytorch_model.bin"),
    ],
)
def test_plain_folder_without_one_of_its_files_says_which(tmp_path: Path, name: str, told: str) -> None:
    shutil.copytree(EXAMPLES / "scribe" / "1", tmp_path / "scribe", ignore=shutil.ignore_patterns(name))
    done = chat(str(tmp_path / "scribe"), lines="Who are you?\n")
    assert done.returncode == 1
    assert told in done.stderr.splitlines()[-1]


def test_plain_folder_that_was_cut_off_says_so_in_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "scribe"
    shutil.copytree(EXAMPLES / "scribe" / "1", folder)
    os.truncate(folder / "model.safetensors", 5_000_000)
    done = chat(str(folder), lines="Who are you?\n")
    assert done.returncode == 1
    told = done.stderr.partition("error: ")[2].splitlines()
    assert told[0] == f"the server could not load '{folder}':"
    assert told[1].startswith(f"{folder / 'model.safetensors'} says that tensor ")
    assert told[1].endswith("it was not written or copied to its end; download the checkpoint again")
    assert len(told) == 2


def test_folder_without_a_model_that_writes_texts_says_what_to_give(tmp_path: Path) -> None:
    done = chat(str(tmp_path), lines="Who are you?\n")
    assert done.returncode == 1
    assert f"error: '{tmp_path}' has no model that writes texts: give the folder of a language model" in done.stderr
    (tmp_path / "model.bin").symlink_to("x" * 300)  # which cannot even be looked at
    assert chat(str(tmp_path), lines="Who are you?\n").stderr == done.stderr


def test_plain_folder_is_served_by_the_engine_where_there_is_no_torch(tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    hide = "import sys\nsys.modules.update(dict.fromkeys(['torch', 'transformers']))\n"
    (tmp_path / "hidden" / "sitecustomize.py").write_text(hide)
    folder = tmp_path / "scribe"
    shutil.copytree(EXAMPLES / "scribe" / "1", folder)
    paths = [str(tmp_path / "hidden"), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "trireme", "chat", str(folder), "--temperature", "0"],
        input="Who are you?\n",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "I am scribe" in done.stdout


def test_server_of_its_own_may_ask_for_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(MODELS / "talker", tmp_path / "talker")
    command = [TRIREME, "keys", "new", str(tmp_path / "keys.toml"), "me"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    monkeypatch.setenv("TRIREME_API_KEYS", str(tmp_path / "keys.toml"))
    monkeypatch.setenv("TRIREME_API_KEY", made.stdout.strip())
    done = chat(str(tmp_path / "talker"), lines="one\n")
    assert (done.returncode, done.stdout) == (0, "one0 \n"), done.stderr


def test_folder_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    shutil.copytree(MODELS / "talker", tmp_path / "talker")
    (tmp_path / "talker/1/model.py").write_text("raise RuntimeError('no sails')\n")
    done = chat(str(tmp_path / "talker"), lines="one\n")
    assert done.returncode == 1
    assert "no sails" in done.stderr


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (os.mkfifo, "it is not a regular file"),
        (lambda path: path.symlink_to("nowhere"), "it is a link, and what it leads to is not there"),
    ],
)
def test_a_configuration_that_is_no_file_is_told(tmp_path: Path, make: Callable[[Path], None], told: str) -> None:
    folder = tmp_path / "mine"
    (folder / "1").mkdir(parents=True)
    make(folder / "config.pbtxt")
    done = chat(str(folder), lines="one\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"loading mine\nerror: the server could not load '{folder}':\n"
        f"failed to open text file for read {folder}/config.pbtxt: {told}\n"
    )


class Terminal:
    """The command on a terminal, and somebody who types."""

    def __init__(self, *words: str) -> None:
        self.shown = ""
        self.process, self._keys = self._spawn([TRIREME, "chat", *words])

    def _spawn(self, command: list[str]) -> tuple[Any, int]:
        pid, keys = pty.fork()
        if pid == 0:
            os.execv(command[0], command)
        return SimpleNamespace(pid=pid), keys

    def type(self, text: str) -> None:
        os.write(self._keys, text.encode())

    def wait_for(self, text: str, key: str = "") -> str:
        """What was shown until then, from the last time on. The key is pressed every second meanwhile."""
        end = time.monotonic() + 30
        pressed = 0.0
        while text not in self.shown:
            assert time.monotonic() < end, self.shown
            if key and time.monotonic() > pressed + 1:
                self.type(key)
                pressed = time.monotonic()
            if select.select([self._keys], [], [], 0.2)[0]:
                self.shown += os.read(self._keys, 65536).decode(errors="replace")
        before, _, self.shown = self.shown.partition(text)
        return before

    def exit_code(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.process.pid, 0)[1])

    def close(self) -> None:
        try:
            os.kill(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.close(self._keys)


def test_ctrl_c_ends_the_answer_and_not_the_chat(server: RunningServer) -> None:
    terminal = Terminal("talker", "--url", url_of(server))
    try:
        terminal.wait_for("> ")
        terminal.type("forever in the terminal\r")
        terminal.wait_for("on on ")
        terminal.type("\x03")
        terminal.wait_for("[stopped; ")
        terminal.wait_for("> ")
        is_cancelled = False
        while not is_cancelled:  # soon; the test's own time limit ends it otherwise
            terminal.type("cancelled forever in the terminal\r")
            is_cancelled = "\n1\r\n" in terminal.wait_for(" tokens in, 1 out")
            terminal.wait_for("> ")
        terminal.wait_for("/exit or Ctrl+D ends", key="\x03")  # pressed while the line is being set up, it is lost
        terminal.type("/exit\r")
        assert terminal.exit_code() == 0
    finally:
        terminal.close()
