"""The Hugging Face hub: its cache on this machine, what it says about a model, and fetching one.

This runs in a process of its own (`hub_process`), so that the server, which may follow in the process that asked,
never holds the hub's packages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trireme.core.reading.json_levels import read_json
from trireme.core.wording.extras import install_line
from trireme.huggingface.deadline import within
from trireme.huggingface.hub_cache import folder_name
from trireme.tools.deploy.hub.model_files import (
    ModelFile,
    ModelFiles,
    files_to_fetch,
    has_chat_template,
    indexed_in,
    missing_weights,
    read_folder,
)
from trireme.tools.deploy.hub.other_folders import described
from trireme.tools.deploy.options import DeployError, HubUnreachableError, ModelNotUsableError

_INDEX_NAME = "model.safetensors.index.json"


class Hub:
    """The hub, for one model."""

    def __init__(self, model_id: str, revision: str | None, environ: Mapping[str, str] = os.environ) -> None:
        self._id = model_id
        self._revision = revision
        self._token = token_of(environ)
        self._package = _package(model_id)

    @property
    def cache_folder(self) -> Path:
        """Where the files of this model are kept on this machine."""
        return Path(self._package.constants.HF_HUB_CACHE) / folder_name(self._id)

    def find(self) -> ModelFiles:
        """The model in the cache, without asking anybody, or else as the hub describes it."""
        cached = self._cached()
        if cached is not None and not self._was_interrupted():
            return cached
        try:
            return self._described()
        except HubUnreachableError:
            if cached is None:
                raise
            return cached

    def fetch(self, names: list[str]) -> Path:
        """Downloads these files; the folder in the cache."""
        return Path(self._asked(self._package.snapshot_download, allow_patterns=names))

    def _cached(self) -> ModelFiles | None:
        try:
            folder = self._package.snapshot_download(self._id, revision=self._revision, local_files_only=True)
            model = read_folder(Path(folder), self._id, "the hub's cache on this machine", commit=Path(folder).name)
        except (OSError, ValueError, DeployError):
            return None
        return None if missing_weights(model) else model

    def _described(self) -> ModelFiles:
        """With the small files that say how large it is; no weights are fetched."""
        info = self._asked(self._first_asked, files_metadata=True)
        files = tuple(ModelFile(entry.rfilename, entry.size or 0) for entry in info.siblings or ())
        names = {file.name for file in files}
        if "config.json" not in names:
            told = described(self._id, sorted(names), self._read)
            reason = told or "it has no config.json, so transformers cannot load it"
            raise ModelNotUsableError(f"'{self._id}' on the hub cannot be served: {reason}")
        try:
            config = read_json(self._read("config.json"))
        except ValueError as error:
            raise ModelNotUsableError(f"config.json of '{self._id}' on the hub cannot be read: {error}") from None
        indexed = indexed_in(self._read(_INDEX_NAME)) if _INDEX_NAME in names else frozenset()
        counts = dict(info.safetensors.parameters) if getattr(info, "safetensors", None) else {}
        return ModelFiles(
            self._id,
            "the hub",
            None,
            files,
            config,
            info.sha,
            info.pipeline_tag,
            counts,
            indexed,
            has_chat_template=has_chat_template([file.name for file in files], self._read),
        )

    def _first_asked(self, *words: Any, **arguments: Any) -> Any:
        """What the hub knows of the model, or TimeoutError where it is silent: other questions are asked six times."""
        limit_s = self._package.constants.HF_HUB_ETAG_TIMEOUT
        return within(limit_s, lambda: self._package.HfApi().model_info(*words, timeout=limit_s, **arguments))

    def _was_interrupted(self) -> bool:
        return any(self.cache_folder.glob("blobs/*.incomplete"))

    def _read(self, name: str) -> str:
        return Path(self._asked(self._package.hf_hub_download, filename=name)).read_text(encoding="utf-8")

    def _asked(self, function: Callable[..., Any], **arguments: Any) -> Any:
        try:
            return function(self._id, revision=self._revision, token=self._token, **arguments)
        except Exception as error:
            raise self._refusal(error) from None

    def _refusal(self, error: Exception) -> DeployError:
        """The package has many errors; a user has four questions."""
        kinds = {kind.__name__ for kind in type(error).__mro__}
        what = f"cannot get '{self._id}' from the Hugging Face hub"
        if "GatedRepoError" in kinds:
            return ModelNotUsableError(
                f"{what}: its owner asks for consent. Accept the conditions on the model's page, and set HF_TOKEN "
                "(or PRIVATE_REPO_TOKEN) to a token of that account."
            )
        if "RevisionNotFoundError" in kinds:
            return ModelNotUsableError(f"{what}: it has no revision '{self._revision}'")
        if "RepositoryNotFoundError" in kinds:
            hint = "" if self._token else " If it is private, set HF_TOKEN (or PRIVATE_REPO_TOKEN)."
            return ModelNotUsableError(f"{what}: there is no such model, nor a folder of that name here.{hint}")
        there = f"('{self.cache_folder}')"
        is_begun = self.cache_folder.is_dir()
        cache = (
            f"its files in the cache of this machine {there} are not complete"
            if is_begun
            else (f"it is not in the cache of this machine {there}")
        )
        if "OfflineModeIsEnabled" in kinds:
            return HubUnreachableError(
                f"{what}: {cache}, and the hub is not asked because HF_HUB_OFFLINE is set. Unset it, give the path of "
                "a folder with the model, or point HF_HOME at a cache that has it."
            )
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        verb = "fails" if "HfHubHTTPError" in kinds else "does not answer"
        return HubUnreachableError(
            f"{what}: {cache}, and the hub {verb} at "
            f"'{self._package.constants.ENDPOINT}' ({type(error).__name__}: {first_line}). Give the path of a folder "
            "with the model, point HF_HOME at a cache that has it, or go online."
        )


def token_of(environ: Mapping[str, str]) -> str | None:
    """The user's token; None leaves it to the package, which looks where `hf auth login` puts one."""
    return environ.get("HF_TOKEN") or environ.get("PRIVATE_REPO_TOKEN") or None


def fetchable(model: ModelFiles) -> tuple[list[str], int]:
    """The files that are worth fetching, and what they amount to."""
    names = files_to_fetch(model)
    sizes = {file.name: file.size_bytes for file in model.files}
    return names, sum(sizes[name] for name in names)


def _package(model_id: str) -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise HubUnreachableError(
            f"'{model_id}' is not a folder here, and getting it from the hub needs the package huggingface_hub: "
            f"{install_line('transformers')}"
        ) from None
    return huggingface_hub
