"""A page followed word by word in a folder of its own: commands in a shell, servers on free ports, Python as it is."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from google.protobuf import text_format
from page_blocks import PROMPT, Block, starts_a_server
from running_server import three_ports

from trireme.proto import model_config_pb2

ROOT = Path(__file__).resolve().parents[2]
RUN_BLOCK = Path(__file__).with_name("run_block.py")
LINKED = (
    "Makefile",
    "README.md",
    "background_build.py",
    "benchmarks",
    "constraints.txt",
    "docs",
    "hatch_build.py",
    "pyproject.toml",
    "src",
    "tests",
)
WAIT_S = 200.0
SOON_S = 20.0
"""For so long a server may take to follow what a page changed."""
_PORTS = {"8000": "http", "8001": "grpc", "8002": "metrics"}
_COMMAND = re.compile(
    r"(?:[A-Z_]+=[\w./:,-]* )*(?:tritonserver|trireme|perf_analyzer|python3? [\w./-]+\.py) [^|&;<>()$`*?\[\]#~!{}\n]*"
)
"""A command of ours or a program in Python, without anything that a shell would act on but quotes: it needs none."""
_QUOTED = re.compile(r"""'[^'\n]*'|"[^"$`\\!\n]*\"""")
"""A text in which a shell acts on nothing."""
_PYTHON_AS_IT_IS = re.compile(r"python3? - <<'(\w+)'\n(.*\n)\1", re.DOTALL)
"""A here-document in which a shell acts on nothing either, and which Python alone gets."""
_COMMENT = re.compile(r" +#.*")
_WRAPPERS = {
    "trireme": 'exec "{python}" -m trireme "$@"',
    "tritonserver": 'exec "{python}" -c "import sys; from trireme.cli.tritonserver import main; sys.exit(main())" "$@"',
    "python": 'exec "{python}" "$@"',
    "python3": '[ "$1 $2" != "-m venv" ] || set -- "$@" --without-pip; exec "{python}" "$@"',
    "docker": 'exec "{python}" "{docker}" "$@"',
    "curl": 'exec "{curl}" --silent --show-error --fail-with-body "$@"',
    "perf_analyzer": 'exec "{python}" -c "import sys; from trireme.cli.load_tests.perf import perf_analyzer; '
    'sys.exit(perf_analyzer())" "$@"',
    "pip": 'exec "{python}" "{pip}" "$@"',
}


class PageRun:
    """The folder, its server, and what the last block printed."""

    def __init__(self, folder: Path, variables: dict[str, str], shared_ports: dict[str, int] | None = None) -> None:
        """`shared_ports`: those of a server that runs already, which the page asks until it starts its own."""
        self.folder = folder
        self.printed = ""
        self._last: Block | None = None
        self.ports = shared_ports or three_ports()
        self._server: subprocess.Popen[bytes] | None = None
        self._log = folder / "server.log"
        self._bin = folder / ".bin"
        self._variables = variables
        self._place = folder
        self._typed = ""
        self._is_printed_below = False
        self._beside: list[subprocess.Popen[bytes]] = []
        self.moved: dict[str, str] = {}
        """Ports of other programs that the page names, and where they are here."""
        self._lay_out()

    def _lay_out(self) -> None:
        shutil.copytree(ROOT / "examples", self.folder / "examples", symlinks=True)
        for name in LINKED:
            (self.folder / name).symlink_to(ROOT / name)
        self._bin.mkdir()
        for name, line in _WRAPPERS.items():
            here = ROOT / "tests/docs"
            places = {"pip": here / "checked_pip.py", "docker": here / "checked_docker.py"}
            self.add_command(name, line.format(python=sys.executable, curl=shutil.which("curl"), **places))

    def add_command(self, name: str, line: str) -> None:
        """A program of this name for the page's commands, as a line of a shell."""
        path = self._bin / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def add_environment(self) -> None:
        """`.venv`, as `make serve` leaves it behind: in it is what the tests run with."""
        environment = self.folder / ".venv"
        environment.mkdir()
        (environment / "bin").symlink_to(self._bin)
        (environment / "lib").symlink_to(Path(sys.prefix) / "lib")
        self.add_command("activate", "PATH=$PWD/.venv/bin:$PATH")
        for name in (".develop", ".core-installed"):
            (environment / name).touch()

    def follow(self, block: Block, below: Block | None = None) -> None:
        """Does what a block says, unless the page says why not; raises AssertionError where it fails. `below` is what
        stands next in the page: a conversation has what the reader types."""
        if block.language == "text":
            self._compare(block)
            return
        is_run = block.reason is None and not block.missing
        self._last = block if is_run else None
        if is_run:
            self._typed = below.typed if below is not None and below.follows else ""
            self._is_printed_below = below is not None and below.follows and below.language == "text"
            self.printed = self._run(block)

    def _run(self, block: Block) -> str:
        if block.language == "sh":
            return "".join([self._run_statement(block, statement) for statement in block.statements])
        if block.language == "python":
            return self._run_python(block, self._adapted(block.text))
        if block.language == "pbtxt":
            text_format.Parse(block.text, model_config_pb2.ModelConfig())
        elif block.language == "toml":
            tomllib.loads(block.text)
        elif block.language == "json":
            json.loads(block.text)
        return ""

    def start_server(self, statement: str) -> None:
        """Runs the command until the server answers; the page's server before it ends."""
        self.stop()
        self.ports = three_ports()
        adapted = self._adapted(statement)
        words, variables = command_of(adapted) or (["bash", "-c", f"exec env {adapted}"], {})
        with self._log.open("wb") as log:
            self._server = subprocess.Popen(
                words,
                cwd=self._place,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment | variables,
                start_new_session=True,
            )
        deadline = time.monotonic() + WAIT_S
        while not self._is_live():
            assert self._server.poll() is None, f"{statement}\n{self.log}"
            assert time.monotonic() < deadline, f"{statement}\n{self.log}"
            time.sleep(0.05)

    @property
    def log(self) -> str:
        """What the page's server has printed."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def stop(self) -> None:
        """Ends the page's server."""
        if self._server is not None:
            server, self._server = self._server, None
            if server.poll() is not None:
                return
            os.killpg(server.pid, signal.SIGTERM)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()

    def start_beside(self, words: list[str]) -> None:
        """A program that the page's commands find running, until the page ends."""
        self._beside.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))

    def end(self) -> None:
        """Ends everything that was started for the page."""
        self.stop()
        for process in self._beside:
            process.terminate()
            process.wait(30)

    @property
    def environment(self) -> dict[str, str]:
        """That of the page's commands: our own first on the PATH, servers on ports of their own."""
        ports = {f"TRIREME_{kind.upper()}_PORT": str(port) for kind, port in self.ports.items()}
        addresses = {f"TRIREME_{kind.upper()}_ADDRESS": "127.0.0.1" for kind in self.ports}
        path = f"{self._bin}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, **ports, **addresses, "PATH": path, **self._variables}

    def _is_live(self) -> bool:
        return any(self._answers(scheme) for scheme in ("http", "https"))

    def _answers(self, scheme: str) -> bool:
        anybody = ssl._create_unverified_context()
        try:
            with urlopen(
                f"{scheme}://127.0.0.1:{self.ports['http']}/v2/health/live", timeout=5, context=anybody
            ) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError) as error:
            return getattr(error, "code", None) in (400, 401)

    def _run_statement(self, block: Block, statement: str) -> str:
        if statement.startswith("cd "):
            self._place = (self._place / shlex.split(statement, comments=True)[1]).resolve()
            assert self._place.is_dir(), f"{block.where}: {statement}"
            return ""
        if starts_a_server(statement):
            self.start_server(statement)
            return ""
        adapted = self._adapted(statement)
        python = _PYTHON_AS_IT_IS.fullmatch(adapted)
        if python is not None:
            return self._run_python(block, python[2])
        words, variables = command_of(adapted) or (["bash", "-eo", "pipefail", "-c", adapted], {})
        printed = self._finished(block, soon_steady(words, is_printed_below=self._is_printed_below), variables)
        assert '{"error"' not in printed, f"{block.where}: {statement}\n{printed}"  # streams have it in a body of 200
        return printed

    def _run_python(self, block: Block, text: str) -> str:
        code = self.folder / ".block.py"
        code.write_text(text)
        return self._finished(block, [sys.executable, str(RUN_BLOCK), str(code), block.where], {})

    def _finished(self, block: Block, command: list[str], variables: dict[str, str]) -> str:
        typed: dict[str, Any] = {"input": self._typed} if self._typed else {"stdin": subprocess.DEVNULL}
        done = subprocess.run(
            command,
            cwd=self._place,
            env=self.environment | variables,
            **typed,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        said = f"{block.where}: {shlex.join(command[-1:])}\n{done.stdout}{done.stderr}\n{self.log[-3000:]}"
        assert done.returncode == 0, said
        return done.stdout

    def _adapted(self, text: str) -> str:
        """With the ports of this run in place of the usual ones."""
        text = re.sub(r"(?<=--http-port[ =])\d+", str(self.ports["http"]), text)
        text = re.sub(r"^trireme chat \w+(?= *(?:#|$))", rf"\g<0> --url http://localhost:{self.ports['http']}", text)
        for port, here in self.moved.items():
            text = re.sub(rf"\b{port}\b", here, text)
        return re.sub(r"(?<=:)800[012]\b", lambda match: str(self.ports[_PORTS[match[0]]]), text)

    def _compare(self, block: Block) -> None:
        """A text below a block that ran is what it prints, soon where it asks a server; `...` stands for anything."""
        if not block.follows or self._last is None:
            return
        lines = [line for line in self._adapted(block.text).splitlines() if not line.startswith(PROMPT)]
        level = same_numbers if block.has_other_numbers else str
        wanted = ".*".join(map(re.escape, level("\n".join(lines)).strip().split("...")))
        deadline = time.monotonic() + SOON_S
        while not re.fullmatch(wanted, level(self.printed).strip(), re.DOTALL):
            is_question = self._last.text.startswith("curl ")
            said = f"{block.where}\n{self.printed}\n{self.log[-3000:]}"
            assert is_question, said
            assert time.monotonic() < deadline, said
            time.sleep(0.1)
            self.printed = self._run(self._last)


def same_numbers(text: str) -> str:
    """The text with one number in place of all, and with columns of one width."""
    text = re.sub(r"\d[\d.,]*", "0", text)
    return re.sub(r"([ ━─])\1+", r"\1", text)


def command_of(statement: str) -> tuple[list[str], dict[str, str]] | None:
    """The words of one of our commands and the variables before them, as a shell would give them to it, so that it can
    be forked; None where only a shell knows."""
    line = statement.replace("\\\n", " ").strip()
    unquoted = _QUOTED.sub("q", line)
    bare = _COMMENT.sub("", unquoted)
    if not _COMMAND.fullmatch(f"{bare} "):
        return None
    words = shlex.split(line, comments=bare != unquoted)
    count = next(place for place, word in enumerate(words) if "=" not in word)
    program = Path(sys.executable).with_name(words[count])
    return [str(program), *words[count + 1 :]], dict(word.split("=", 1) for word in words[:count])


def soon_steady(words: list[str], *, is_printed_below: bool = False) -> list[str]:
    """The words of a load test that goes on until three windows agree, as they may never do beside other tests: here
    they always do, and are short (the last word counts) unless the page says how long they are and shows what that
    prints. So are those of an analysis, and the seconds of an example that measures. Other commands stay as they
    are."""
    if "triton-http-client.py" in words and "--benchmark" in words:
        return [*words, "--limit", "1"]
    if words[1:2] == ["analyze"] and words[2:3] not in (["analyze"], ["report"]):
        return [*words, "--measurement-interval", "200", "--duration-seconds", "0.1"]
    is_load_test = Path(words[0]).name == "perf_analyzer" or (words[1:2] == ["perf"] and words[2:3] != ["llm"])
    if not is_load_test or "--request-count" in words:
        return words
    return [*words, "-s", "9999", *([] if "-p" in words and is_printed_below else ["-p", "200"])]
