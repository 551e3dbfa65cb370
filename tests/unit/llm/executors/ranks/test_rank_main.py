"""The program of a rank, up to where it loads its part."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import trireme
from trireme.llm.executors.ranks.program import PROGRAM


def test_a_rank_has_the_whole_package_where_it_is_not_installed() -> None:
    program = (
        f"import json, sys; sys.path.insert(0, {str(PROGRAM.parent)!r})\n"
        "import rank_main\n"
        "is_installed = __import__('importlib.util').util.find_spec('trireme') is not None\n"
        "rank_main.add_package()\n"
        "import trireme, trireme.core.errors\n"
        "facts = trireme.__version__, trireme.__file__, trireme.__spec__.name, list(trireme.__path__), sys.path[0]\n"
        "print(json.dumps([is_installed, *facts]))"
    )
    command = [sys.executable, "-I", "-S", "-c", program]  # without the folders of installed packages
    is_installed, version, file, name, path, first = json.loads(subprocess.check_output(command))
    assert not is_installed
    assert version == trireme.__version__
    assert Path(file) == Path(str(trireme.__file__))
    assert name == "trireme"
    assert path == [str(Path(file).parent)]
    assert first == "", "the folder of the program would shadow others"
