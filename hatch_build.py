"""Compiles the modules on the path of every request while a wheel is built.

They are ordinary Python, typed strictly, and run as they are; mypyc makes C extensions of them, which the import
system prefers to the sources beside them. Where that is not wanted (`TRIREME_COMPILE=0`, an editable install) or not
possible (no C compiler, no mypyc), the wheel is built from the sources alone and serves the same, more slowly;
`TRIREME_COMPILE=1` makes that an error. `TRIREME_COMPILE_LEVEL=0` has the C compiler optimize nothing, for a build that
is there to be tested: the same C in less than half the time. Each file is named when it is compiled: on stdout, which
pip shows with `-v`, and on the terminal, or where there is none, as on a build server, on what pip has as its standard
error.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_COMPILER = "mypy[mypyc]>=1.13"
_MARK = "compiling "
"""How a line about progress begins."""
_LOG_TAIL = 2000

_SETUP = """
import os
from concurrent.futures import ThreadPoolExecutor

from mypyc.build import mypycify
from setuptools import setup
from distutils.ccompiler import CCompiler  # setuptools' own, under the name that its commands import it by

modules = {modules!r}
print(f"{mark}{{len(modules)}} modules: translating them to C", flush=True)
# The packages that the modules import may be absent here. A class derived from one of theirs would then be laid out
# wrongly and crash, so it is refused, in the modules to be compiled and not in those that they import.
options = ["--config-file=", "--ignore-missing-imports", "--disallow-subclassing-any", "--follow-imports=silent"]
level = os.environ.get("TRIREME_COMPILE_LEVEL") or "3"
extensions = mypycify([*options, *modules], opt_level=level, debug_level="0", multi_file=True, group_name="trireme")


def join(sources):
    # Without optimization reading the headers takes as long as many a module: the modules are included in a few files.
    modules = sorted((name for name in sources if "___" in os.path.basename(name)), key=os.path.getsize)
    parts = []
    for number in range(2 * (os.cpu_count() or 1)):
        names = modules[number :: 2 * (os.cpu_count() or 1)]
        parts.append(os.path.join(os.path.dirname(sources[0]), f"part_{{number}}.c"))
        with open(parts[-1], "w") as part:
            part.writelines(f'#include "{{os.path.basename(name)}}"\\n' for name in names)
    return [name for name in sources if name not in modules] + parts


if level == "0":
    for extension in extensions:
        if len(extension.sources) > 1:
            extension.sources = join(extension.sources)
total = sum(len(extension.sources) for extension in extensions)
done = 0


def compile_sources(self, sources, output_dir=None, macros=None, include_dirs=None, debug=0, extra_preargs=None,
                    extra_postargs=None, depends=None):
    # All modules are sources of one extension, which the compiler's own loop takes one after the other.
    macros, objects, extra_postargs, pp_opts, build = self._setup_compile(
        output_dir, macros, include_dirs, sources, depends, extra_postargs
    )
    cc_args = self._get_cc_args(pp_opts, debug, extra_preargs)

    def compile_one(name):
        global done
        source, suffix = build[name]
        self._compile(name, source, suffix, cc_args, extra_postargs, pp_opts)
        done += 1
        module = os.path.basename(source).removesuffix(".c").removeprefix("__native_").replace("___", ".")
        print(f"{mark}{{done}}/{{total}} {{module}}", flush=True)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(compile_one, [name for name in objects if name in build]))
    return objects


CCompiler.compile = compile_sources
setup(name="trireme_compiled", packages=[], py_modules=[], ext_modules=extensions)
"""


class CompileHook(BuildHookInterface[Any]):
    """The `custom` build hook; its setting `modules` lists files and patterns under `src`."""

    def dependencies(self) -> list[str]:
        """What building needs besides hatchling: nothing where nothing is compiled, so that this is quick."""
        return [] if os.environ.get("TRIREME_COMPILE") == "0" else [_COMPILER]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wish = os.environ.get("TRIREME_COMPILE", "")
        if self.target_name != "wheel" or version == "editable" or wish == "0":
            return
        self._scratch = tempfile.mkdtemp(prefix="trireme-build-")
        try:
            compiled = self._compile(Path(self._scratch))
        except (OSError, subprocess.CalledProcessError) as error:
            output = getattr(error, "output", "") or ""
            if wish == "1":
                raise RuntimeError(f"the modules could not be compiled: {error}\n{output}") from error
            self.app.display_warning(f"the package is built without compiled modules: {error}\n{output[-_LOG_TAIL:]}")
            return
        build_data["force_include"].update(compiled)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        scratch = getattr(self, "_scratch", None)
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)

    def _compile(self, scratch: Path) -> dict[str, str]:
        """The extensions by where they are to stand in the wheel."""
        source = scratch / "src"
        shutil.copytree(Path(self.root) / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        modules = sorted(
            {str(path.relative_to(source)) for pattern in self.config["modules"] for path in source.glob(pattern)}
        )
        (source / "setup.py").write_text(_SETUP.format(modules=modules, mark=_MARK))
        built = scratch / "built"
        _run_telling([sys.executable, "setup.py", "-q", "build_ext", f"--build-lib={built}"], source)
        return {str(path): str(path.relative_to(built)) for path in built.rglob("*") if path.is_file()}


def _run_telling(command: list[str], folder: Path) -> None:
    """Runs the command, passes its lines about progress on, and raises CalledProcessError with all its output."""
    output: list[str] = []
    with subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        _tell(line for line in process.stdout if output.append(line) is None)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, "".join(output))


def _tell(lines: Iterator[str]) -> None:
    """Lines about progress: each on stdout, the newest on the terminal, or each where pip writes its errors."""
    with ExitStack() as stack:
        terminal = stack.enter_context(_opened("/dev/tty")) if not sys.stdout.isatty() else None
        errors = stack.enter_context(_opened(_errors_of_pip())) if terminal is None else None
        for line in lines:
            if not line.startswith(_MARK):
                continue
            print(line, end="", flush=True)
            if terminal is not None:
                print(f"\r\033[K{line.rstrip()}", end="", file=terminal, flush=True)
            elif errors is not None:
                with suppress(OSError):  # nobody reads it any more
                    print(line, end="", file=errors, flush=True)
        if terminal is not None:
            print("\r\033[K", end="", file=terminal, flush=True)


@contextmanager
def _opened(path: str) -> Iterator[TextIO | None]:
    """To write to; None where that cannot be."""
    with ExitStack() as stack:
        file = None
        if path:
            with suppress(OSError):
                file = stack.enter_context(open(path, "a"))
        yield file


def _errors_of_pip() -> str:
    """The standard error of the pip that runs this and keeps all output to itself; "" where it shows it, or is to be
    quiet, or where it is another program."""
    parent = Path(f"/proc/{os.getppid()}")
    try:
        words = (parent / "cmdline").read_text().split("\0")
    except OSError:
        return ""
    is_pip = any(Path(word).name.startswith("pip") for word in words[:4])
    has_wish = any(word in ("--verbose", "--quiet") or re.fullmatch("-[vq]+", word) for word in words)
    return str(parent / "fd/2") if is_pip and not has_wish else ""
