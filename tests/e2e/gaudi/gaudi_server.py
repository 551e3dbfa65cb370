"""The server as Gaudi's guide has people type it, and the folders that they copy into its repository. Where there is no
Gaudi, `--devices=cpu` has to be said."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from running_server import RunningServer, three_ports
from tiny_models import cached

VARIABLES = {"PT_HPU_LAZY_MODE": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
COMMAND = "tritonserver --model-repository $PWD/model_repository/"
TEMPLATES = Path(__file__).parents[3] / "examples" / "gaudi"
ORIGINAL = Path(__file__).parent / "folders" / "qwen2"
HUB_NAMES = {"qwen2": "Qwen/Qwen2-1.5B-Instruct", "llama2": "huggyllama/llama-7b"}
TINY_KINDS = {"qwen2": "qwen2", "llama2": "llama"}
CLIENT = TEMPLATES / "client.py"
MOST_TOKENS = "20"
"""In place of the 100 that the files ask for: half of what a worker used was drawing beams for the rest."""


class GaudiServer(RunningServer):
    """The same as its base, with the guide's variables; typed in a shell where that is asked for, which takes longer,
    since the whole server then starts from scratch."""

    def __init__(
        self, folder: Path, *flags: str, variables: Mapping[str, str] | None = None, is_typed: bool = False
    ) -> None:
        self.ports = three_ports()
        addresses = [f"--{kind}-port {port} --{kind}-address 127.0.0.1" for kind, port in self.ports.items()]
        words = " ".join([COMMAND, *addresses, *flags])
        given = {
            "OMP_NUM_THREADS": "1",  # threads only get in each other's way
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            **(variables or {}),
        }
        if is_typed:
            assigned = " ".join(f"{name}={value}" for name, value in VARIABLES.items())
            self._start(folder, f"{assigned} exec {words}", **given)
        else:
            self._start(folder, words.replace("$PWD", str(folder)).split(), **VARIABLES, **given)

    def wait_until_listening(self) -> None:
        """Longer than others wait: two models import their libraries at once."""
        self.until(lambda: "Started Metrics Service" in self.log, timeout_s=200)

    def ask_client(self, names: str) -> subprocess.CompletedProcess[str]:
        """What `client.py --model_name <names>` printed."""
        command = [sys.executable, str(CLIENT), "--model_name", names, "-u", f"127.0.0.1:{self.ports['http']}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=200)


def copy_original(folder: Path, name: str) -> None:
    """`cp -r <name>/ model_repository/` of the files written for Gaudi, pointed at a tiny model. The two models
    differ in a few constants, and each has a `utils` of its own."""
    target = folder / "model_repository" / name
    shutil.copytree(ORIGINAL, target, ignore=shutil.ignore_patterns("__pycache__"))
    replace(target / "1" / "model.py", HUB_NAMES["qwen2"], str(cached(TINY_KINDS[name])))
    replace(target / "1" / "model.py", "max_new_tokens = 100", f"max_new_tokens = {MOST_TOKENS}")
    if name == "llama2":
        replace(target / "config.pbtxt", '"qwen2"', '"llama2"')
        replace(target / "1" / "model.py", "num_beams = 3", "num_beams = 1")
        replace(target / "1" / "model.py", "use_flash_attention = True", "use_flash_attention = False")
        replace(target / "1" / "utils.py", "debug====", "other utils====")


def copy_template(folder: Path, name: str) -> None:
    """`cp -r <name>/ model_repository/` of the portable template, with a tiny model in its parameter."""
    target = folder / "model_repository" / name
    shutil.copytree(TEMPLATES / name, target, ignore=shutil.ignore_patterns("__pycache__"))
    replace(target / "config.pbtxt", HUB_NAMES[name], str(cached(TINY_KINDS[name])))
    replace(target / "config.pbtxt", 'string_value: "100"', f'string_value: "{MOST_TOKENS}"')


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text, file
    file.write_text(text.replace(old, new))
