"""Compiles the modules on the path of every request while a wheel is built.

They are ordinary Python, typed strictly, and run as they are; mypyc makes C extensions of them, which the import
system prefers to the sources beside them. Where that is not wanted (`TRIREME_COMPILE=0`, an editable install) or not
possible (no C compiler, no mypyc), the wheel is built from the sources alone and serves the same, more slowly;
`TRIREME_COMPILE=1` makes that an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SETUP = """
from mypyc.build import mypycify
from setuptools import setup

modules = {modules!r}
# The packages that the modules import may be absent here. A class derived from one of theirs would then be laid out
# wrongly and crash, so it is refused, in the modules to be compiled and not in those that they import.
options = ["--config-file=", "--ignore-missing-imports", "--disallow-subclassing-any", "--follow-imports=silent"]
extensions = mypycify([*options, *modules], opt_level="3", debug_level="0", multi_file=True, group_name="trireme")
setup(name="trireme_compiled", packages=[], py_modules=[], ext_modules=extensions)
"""


class CompileHook(BuildHookInterface[Any]):
    """The `custom` build hook; its setting `modules` lists files and patterns under `src`."""

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
            self.app.display_warning(f"the package is built without compiled modules: {error}\n{output[-2000:]}")
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
        (source / "setup.py").write_text(_SETUP.format(modules=modules))
        built = scratch / "built"
        jobs = str(os.cpu_count() or 1)
        command = [sys.executable, "setup.py", "-q", "build_ext", f"--parallel={jobs}", f"--build-lib={built}"]
        subprocess.run(command, cwd=source, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return {str(path): str(path.relative_to(built)) for path in built.rglob("*") if path.is_file()}
