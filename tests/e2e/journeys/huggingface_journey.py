"""What a user does with the folders people have: they are copied, pointed at tiny models, served and asked."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tiny_models
from running_server import RunningServer

FOLDERS = Path(__file__).parent / "folders"
KINDS = {"falcon7b": "falcon", "persimmon8b": "persimmon", "llama7b": "llama"}
HUB_NAMES = {
    "falcon7b": "tiiuae/falcon-7b",
    "persimmon8b": "adept/persimmon-8b-base",
    "llama7b": "meta-llama/Llama-2-7b-hf",
}


class Journey:
    """A folder with a `model_repository` in it, in which a user works."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = folder / "model_repository"
        self.repository.mkdir()

    def add(self, model: str, weights: str | None = None, name: str | None = None) -> Path:
        """`cp -r <model>/ model_repository/`, and the hub's name in its configuration replaced by local weights."""
        target = self.repository / (name or model)
        shutil.copytree(FOLDERS / model, target)
        weights = weights or str(tiny_models.cached(KINDS[model]))
        config = target / "config.pbtxt"
        config.write_text(config.read_text().replace(HUB_NAMES[model], weights))
        return target

    @contextmanager
    def served(self, *flags: str) -> Iterator[RunningServer]:
        with RunningServer(self.folder, *flags) as server:
            # Several processes import torch at once, which takes its time on few and busy cores.
            server.until(lambda: "Started Metrics Service" in server.log, timeout_s=240)
            yield server


def infer_body(text: str, **changes: object) -> dict[str, object]:
    return {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": [text], **changes}]}


def infer(server: RunningServer, model: str, text: str) -> dict[str, Any]:
    """The one output of an infer request that succeeds."""
    status, _, body = server.ask("POST", f"/v2/models/{model}/infer", infer_body(text))
    assert status == 200, body
    (output,) = json.loads(body)["outputs"]
    return dict(output)


def generate(server: RunningServer, model: str, text: str) -> dict[str, Any]:
    status, _, body = server.ask("POST", f"/v2/models/{model}/generate", {"text_input": text})
    assert status == 200, body
    return dict(json.loads(body))


def told_of(server: RunningServer, model: str, letter: str = "W") -> list[str]:
    """The lines that tell what was done for this model, or with `I`, what could be."""
    lines = (line for line in server.log.splitlines() if line.startswith(letter) and f"[{model}_0] " in line)
    return [line for line in lines if re.search(r"\bcompat\b", line)]
