"""The process that speaks with the hub: one question on its standard input, one answer on its standard output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trireme.core.exit_codes import INTERRUPTED
from trireme.tools.deploy.hub.hub import Hub, fetchable
from trireme.tools.deploy.hub.model_files import ModelFile, ModelFiles, read_folder
from trireme.tools.deploy.options import DeployError, HubUnreachableError, ModelNotUsableError
from trireme.tools.deploy.progress import Progress, folder_bytes

_ERRORS = {kind.__name__: kind for kind in (DeployError, HubUnreachableError, ModelNotUsableError)}


def find_on_hub(model_id: str, revision: str | None) -> ModelFiles:
    """The model in the cache of this machine, or as the hub describes it; raises DeployError."""
    found = _asked({"model": model_id, "revision": revision})
    form = {**found["model"], "indexed": frozenset(found["model"]["indexed"])}
    form["files"] = tuple(ModelFile(**file) for file in form["files"])
    for name in ("folder", "cache_folder"):
        form[name] = Path(form[name]) if form[name] else None
    return ModelFiles(**form)


def fetch_from_hub(model: ModelFiles) -> ModelFiles:
    """The model with its files on this machine; shows how far it is. Raises DeployError."""
    names, total_bytes = fetchable(model)
    cache = model.cache_folder or Path()
    before = folder_bytes(cache)
    with Progress(f"fetching {model.reference}", total_bytes, lambda: folder_bytes(cache) - before):
        found = _asked({"model": model.reference, "revision": model.commit, "names": names})
    return read_folder(Path(found["folder"]), model.reference, model.where, commit=model.commit)


def main() -> int:
    """Answers; the exit code of the process that asks the hub."""
    question = json.load(sys.stdin)
    try:
        answer = _answer(question)
    except DeployError as error:
        answer = {"error": type(error).__name__, "message": str(error)}
    except KeyboardInterrupt:
        return INTERRUPTED
    print(json.dumps(answer))
    return 0


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    hub = Hub(question["model"], question["revision"])
    if "names" in question:
        return {"folder": str(hub.fetch(question["names"]))}
    model = hub.find()
    changed = {
        "indexed": sorted(model.indexed),
        "folder": str(model.folder) if model.folder else None,
        "cache_folder": str(hub.cache_folder),
    }
    return {"model": {**asdict(model), **changed}}


def _asked(question: dict[str, Any]) -> dict[str, Any]:
    # Its own bars are for one file each, and know nothing of the whole.
    done = subprocess.run(
        [sys.executable, "-m", "trireme.tools.deploy.hub.process"],
        input=json.dumps(question),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
        check=False,
    )
    if done.returncode == INTERRUPTED:
        raise KeyboardInterrupt
    if done.returncode != 0 or not done.stdout.strip():
        raise HubUnreachableError(f"asking the hub for '{question['model']}' ended with code {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "error" in answer:
        raise _ERRORS[answer["error"]](answer["message"])
    return answer


if __name__ == "__main__":
    sys.exit(main())
