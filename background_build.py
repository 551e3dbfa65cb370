"""Compiles the package beside a server that runs from the sources, for the next `make serve`.

`make serve` calls this before it serves. A compiled build of these very sources is installed where there is one;
otherwise the sources are served as they are, and a build is begun that does not end with the server. What it says is
in `compile.log` in the virtual environment, and in short on the terminal as long as `make` runs.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
ENVIRONMENT = Path(sys.prefix)
INSTALLED = ENVIRONMENT / ".compiled"
"""Holds the fingerprint of the sources that the installed build was compiled from; absent where it is the sources."""
UNOPTIMIZED = ENVIRONMENT / ".unoptimized-installed"
"""There where what is installed was compiled for tests alone."""
FOLDER = ENVIRONMENT / "compiled"
LOG = ENVIRONMENT / "compile.log"
_RUNNING = ENVIRONMENT / ".compiling"
_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
_PART, _SCRATCH = ".part", ".tmp"
_MADE_BY = ("hatch_build.py", "pyproject.toml", "constraints.txt")
_NICE = 15
"""The server and its models come first."""


def main(words: list[str]) -> int:
    """`prepare` before a server, `remind` behind it, `mark` after a compiled install, `unmark` after one that is for
    tests alone, `build` in the background.

    `is-installed` ends with 0 where `pip install .` has compiled these sources, and nothing is to be installed.
    """
    if words[0] == "is-installed":
        return 0 if has_build() else 1
    if words[0] == "prepare":
        prepare()
    elif words[0] == "remind":
        remind()
    elif words[0] == "mark":
        INSTALLED.write_text(fingerprint())
    elif words[0] == "unmark":
        INSTALLED.unlink(missing_ok=True)
    else:
        build(words[1], int(words[2]))
    return 0


def prepare() -> None:
    """Leaves the best build of today's sources installed that needs no waiting."""
    wanted = fingerprint()
    is_compiled = INSTALLED.exists()
    if is_compiled and INSTALLED.read_text() == wanted:
        return
    if has_build():
        INSTALLED.write_text(wanted)
        return
    wheels = list((FOLDER / wanted).glob("*.whl"))
    if wheels:
        subprocess.run([*_PIP, "install", "--quiet", "--force-reinstall", "--no-deps", str(wheels[0])], check=True)
        INSTALLED.write_text(wanted)
        UNOPTIMIZED.unlink(missing_ok=True)
        print("The compiled build is installed and used from now on.", flush=True)
        return
    if is_compiled or not _serves_sources():
        is_for_tests = UNOPTIMIZED.exists()
        why = "What is installed is for tests alone" if is_for_tests else "The installed build is of other sources"
        print(f"{why}: the sources are served as they are.", flush=True)
        environ = {**os.environ, "TRIREME_COMPILE": "0"}
        subprocess.run([*_PIP, "install", "--quiet", "--no-deps", "--editable", str(ROOT)], env=environ, check=True)
        INSTALLED.unlink(missing_ok=True)
        UNOPTIMIZED.unlink(missing_ok=True)
    if os.environ.get("TRIREME_COMPILE") != "0" and not is_running(wanted):
        start(wanted)


def has_build() -> bool:
    """Whether `pip install .` has put these sources into the environment, compiled, and what they need with them."""
    package, sources = _package(), ROOT / "src"
    if UNOPTIMIZED.exists() or package is None or package == sources / "trireme" or not any(package.rglob("*.so")):
        return False
    needed_since = max((ROOT / name).stat().st_mtime for name in _MADE_BY)
    if (package / "__init__.py").stat().st_ctime < needed_since:
        return False
    return all(_is_copied(path, package.parent / path.relative_to(sources)) for path in _sources())


def _sources() -> list[Path]:
    """What the package is made of."""
    return [path for path in sorted((ROOT / "src").rglob("*")) if path.is_file() and path.suffix not in (".pyc", ".so")]


def _is_copied(source: Path, copy: Path) -> bool:
    try:
        return source.read_bytes() == copy.read_bytes()
    except OSError:
        return False


def _serves_sources() -> bool:
    """Whether the package is taken from the sources, and is no copy of them that `pip install .` made."""
    return _package() in (None, ROOT / "src/trireme")


def _package() -> Path | None:
    """The folder that the package is imported from."""
    found = importlib.util.find_spec("trireme")
    return None if found is None or found.origin is None else Path(found.origin).resolve().parent


def start(wanted: str) -> None:
    """Begins the build, in a session of its own: Ctrl+C ends the server and not this."""
    print(f"Serving the sources; compiling them in the background for the next start, see {_shown(LOG)}.", flush=True)
    remove_remains()
    command = [sys.executable, __file__, "build", wanted, str(os.getppid())]
    process = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
    _RUNNING.write_text(f"{process.pid} {wanted}")


def remove_remains() -> None:
    """What builds have left that were ended before their end: more than a hundred megabytes each."""
    pid, compiled = _begun()
    kept = compiled if _is_alive(pid) else ""
    for folder in FOLDER.glob("*.*"):
        if folder.suffix in (_PART, _SCRATCH) and folder.stem != kept:
            shutil.rmtree(folder, ignore_errors=True)


def remind() -> None:
    """Says that the build goes on though the server has ended, and how to end it."""
    pid, _ = _begun()
    if _is_alive(pid):
        print(f"Compiling goes on in the background for the next start, see {_shown(LOG)}; 'kill -- -{pid}' ends it.")


def is_running(wanted: str) -> bool:
    """Whether these sources are being compiled, or could not be: what failed once is not tried at every start."""
    pid, compiled = _begun()
    return compiled == wanted and (_is_alive(pid) or (FOLDER / wanted / "failed").exists())


def _begun() -> tuple[str, str]:
    """The process of the build that was begun last, and what it compiles; empty where there was none."""
    try:
        pid, compiled = _RUNNING.read_text().split()
    except (OSError, ValueError):
        return "", ""
    return pid, compiled


def _is_alive(pid: str) -> bool:
    try:
        return bool(pid) and b"build" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def build(wanted: str, reader: int) -> None:
    """Makes the wheel and tells process `reader`'s terminal how far it is, every quarter."""
    os.nice(_NICE)
    began = time.monotonic()
    folder = FOLDER / wanted
    part = FOLDER / f"{wanted}{_PART}"
    scratch = FOLDER / f"{wanted}{_SCRATCH}"
    scratch.mkdir(parents=True, exist_ok=True)
    command = [*_PIP, "wheel", "--verbose", "--no-deps", f"--wheel-dir={part}", str(ROOT)]
    environ = {**os.environ, "TRIREME_COMPILE": "1", "TMPDIR": str(scratch)}
    shown = 0
    with (
        open(LOG, "w") as log,
        subprocess.Popen(command, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", file=log, flush=True)
            done, quarter = _progress(line)
            if quarter > shown:
                shown = quarter
                _tell(f"Compiling in the background: {done} files.", reader)
    shutil.rmtree(scratch, ignore_errors=True)
    if not FOLDER.exists():
        return  # somebody has removed the clone
    seconds = round(time.monotonic() - began)
    if process.returncode:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "failed").touch()
        _tell(f"Compiling failed after {seconds} s, see {_shown(LOG)}; the sources serve the same, slower.", reader)
    else:
        part.rename(folder)
        _tell(f"Compiled in {seconds} s: the next `make serve` uses it.", reader)


def fingerprint() -> str:
    """What the compiled modules are made of, and for which interpreter."""
    digest = hashlib.sha256(sys.version.encode())
    for path in (*(ROOT / name for name in _MADE_BY), *_sources()):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _progress(line: str) -> tuple[str, int]:
    """From `compiling 30/92 module`: the fraction as text and the quarters that are full."""
    words = line.split()
    if len(words) < 2 or words[0] != "compiling" or "/" not in words[1]:
        return "", 0
    done, total = map(int, words[1].split("/"))
    return f"{done} of {total}", 4 * done // total if done < total else 0


def _tell(sentence: str, reader: int) -> None:
    """Nobody is told who has gone back to the shell."""
    try:
        os.kill(reader, 0)
        print(sentence, flush=True)
    except OSError:
        pass


def _shown(path: Path) -> str:
    return os.path.relpath(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
