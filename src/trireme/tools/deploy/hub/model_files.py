"""A model's files: which there are, which are its weights, and which of them are worth fetching."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from trireme.core.reading.json_levels import DeepJsonError, read_json
from trireme.machine.regular_files import read_regular
from trireme.tools.deploy.hub.other_folders import described, described_folder
from trireme.tools.deploy.options import ModelNotUsableError

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_CHAT_TEMPLATE = "chat_template.jinja"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".ot", ".onnx", ".gguf", ".tflite", ".safetensors")
"""Suffixes of weights; a hub folder often has the same ones in several of these forms."""
_NOT_NEEDED = (".md", ".png", ".jpg", ".jpeg", ".gif", ".pdf", ".mlmodel", ".zip", ".gz", ".parquet", ".data", ".xml")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file, by its path inside the model's folder."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model as it is found before its weights are needed."""

    reference: str
    """How the served model names it: an absolute path, or an id."""
    where: str
    """For people: `this folder`, `the hub`."""
    folder: Path | None
    """Where the files are on this machine; None while they are on the hub only."""
    files: tuple[ModelFile, ...]
    config: Mapping[str, Any]
    """Its config.json."""
    commit: str | None = None
    """Which of the hub's versions of it."""
    pipeline_tag: str | None = None
    parameter_counts: Mapping[str, int] = field(default_factory=dict)
    """Parameters by safetensors datatype, where the hub knows them."""
    indexed: frozenset[str] = frozenset()
    """Weights that an index file names."""
    cache_folder: Path | None = None
    """Where the hub's files of this model are kept on this machine."""
    has_chat_template: bool = False

    @property
    def short_name(self) -> str:
        """The last part of what it is called; a folder with a number for its name is a version of the one around it."""
        path = PurePosixPath(self.reference.rstrip("/"))
        is_version = path.is_absolute() and path.name.isascii() and path.name.isdecimal()
        return (path.parent.name if is_version else "") or path.name


def read_folder(folder: Path, reference: str, where: str, commit: str | None = None) -> ModelFiles:
    """The model in a folder of this machine."""
    config_file = folder / "config.json"
    try:
        config = read_json(read_regular(config_file))
    except FileNotFoundError:
        raise ModelNotUsableError(_about_other_folder(folder)) from None
    except OSError as error:
        raise ModelNotUsableError(
            f"cannot read '{config_file}' ({error.strerror or error}), which says what the model is: put that "
            "file there"
        ) from None
    except DeepJsonError as error:
        raise ModelNotUsableError(f"cannot read '{config_file}': {error}") from None
    except ValueError as error:
        raise ModelNotUsableError(
            f"'{config_file}' is not JSON ({error}): fetch it again, from where the model's other files come from"
        ) from None
    if not isinstance(config, dict):
        raise ModelNotUsableError(f"'{config_file}' does not hold an object")
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    files = [ModelFile(path.relative_to(folder).as_posix(), path.stat().st_size) for path in paths]
    return ModelFiles(
        reference,
        where,
        folder,
        tuple(files),
        config,
        commit,
        indexed=_indexed(folder),
        has_chat_template=has_chat_template([file.name for file in files], lambda name: _text_of(folder / name)),
    )


def _about_other_folder(folder: Path) -> str:
    try:
        told = described_folder(folder)
    except OSError as error:
        told = f"it cannot be read: {error.strerror}"
    if told is not None:
        return f"'{folder}' cannot be served: {told}"
    return f"'{folder}' has no config.json, so it is not a folder that Hugging Face's save_pretrained wrote"


def has_chat_template(names: Sequence[str], read: Callable[[str], str]) -> bool:
    """Whether the tokenizer knows how to write a conversation; `read` gives the text of a small file."""
    if _CHAT_TEMPLATE in names:
        return True
    if _TOKENIZER_CONFIG not in names:
        return False
    try:
        found = read_json(read(_TOKENIZER_CONFIG))
    except ValueError:
        return False
    return isinstance(found, dict) and bool(found.get("chat_template"))


def weight_files(files: Iterable[ModelFile], indexed: frozenset[str] = frozenset()) -> list[ModelFile]:
    """The files that hold the weights, once: safetensors where there are any, PyTorch's own form otherwise."""
    top = [file for file in files if "/" not in file.name]
    for suffix, prefix in ((".safetensors", "model"), (".bin", "pytorch_model")):
        found = [file for file in top if file.name.endswith(suffix)]
        if not found:
            continue
        named = [file for file in found if file.name in indexed]
        usual = [file for file in found if file.name.startswith(prefix)]
        adapters = [file for file in found if not file.name.startswith(("adapter_", "training_args", "optimizer"))]
        chosen = named or usual or adapters
        if chosen:
            return chosen
    return []


def files_to_fetch(model: ModelFiles) -> list[str]:
    """The names of what loading the model needs: one form of the weights, and the small files around them."""
    names = [file.name for file in weight_files(model.files, model.indexed)]
    for file in model.files:
        path = PurePosixPath(file.name)
        is_hidden = path.name.startswith(".")
        is_deep = len(path.parts) > 1 and path.suffix not in (".json", ".txt")
        is_weight = path.suffix in _OTHER_WEIGHTS
        if not (is_hidden or is_deep or is_weight or path.suffix.lower() in _NOT_NEEDED):
            names.append(file.name)
    return names


def missing_weights(model: ModelFiles) -> str | None:
    """Why the weights cannot be loaded from where they are, for a person; None where they are all there."""
    present = {file.name for file in model.files}
    absent = sorted(name for name in model.indexed if name not in present)
    if absent:
        return f"{len(absent)} of {len(model.indexed)} weight files are missing, the first is {absent[0]}"
    if weight_files(model.files, model.indexed):
        return None
    folder = model.folder
    told = described(model.reference, sorted(present), lambda name: _text_of(folder / name) if folder else "")
    if told is not None:
        return told
    others = _other_forms(model.files)
    if others:
        return f"there are no safetensors or PyTorch weights, only {', '.join(others)}"
    return "there are no weights (model.safetensors or pytorch_model.bin)"


def _other_forms(files: Sequence[ModelFile]) -> list[str]:
    suffixes = {PurePosixPath(file.name).suffix for file in files}
    return sorted(suffixes.intersection(_OTHER_WEIGHTS))


def _indexed(folder: Path) -> frozenset[str]:
    for name in _INDEXES:
        if (folder / name).is_file():
            return indexed_in((folder / name).read_text(encoding="utf-8"))
    return frozenset()


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""


def indexed_in(index_text: str) -> frozenset[str]:
    """The weight files that an index names."""
    try:
        return frozenset(read_json(index_text)["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError):
        return frozenset()
