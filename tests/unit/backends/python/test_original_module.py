"""Our module of Triton's name inside Triton's own stub process, which brings a built-in module that nobody else has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import triton_python_backend_utils

OURS = Path(triton_python_backend_utils.__file__).parents[1]
STUB = """
import sys
sys.builtin_module_names += ({builtin!r},)
sys.path.append({folder!r})
import triton_python_backend_utils as pb_utils
assert sys.modules["triton_python_backend_utils"] is pb_utils
print(pb_utils.__file__, hasattr(pb_utils, "get_model_dir"), hasattr(pb_utils, "ORIGINAL"))
"""


def imported(folder: Path, builtin: str) -> list[str]:
    program = STUB.format(builtin=builtin, folder=str(folder))
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(OURS)!r})\n{program}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_tritons_file_takes_the_place_of_ours_in_its_stub(tmp_path: Path) -> None:
    original = tmp_path / "triton_python_backend_utils.py"
    original.write_text("ORIGINAL = True")
    assert imported(tmp_path, "c_python_backend_utils") == [str(original), "False", "True"]
    assert imported(tmp_path, "another")[1:] == ["True", "False"]
