"""How much memory a model may need, as its files tell before it has ever been loaded. Blocks on the file system."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from trireme.config.message import ConfigMessage
from trireme.huggingface.hub_cache import cached_snapshots
from trireme.registry.repository.folder_stamp import tree_entries

_HUB_PARAMETERS = ("model", "huggingface_model")
_ENVIRONMENT_PARAMETER = "EXECUTION_ENV_PATH"
_OTHER_FORMS = (".bin", ".h5", ".msgpack", ".ot")
"""What lies beside safetensors in many folders, with the same weights once more."""
_WEIGHTS = (".safetensors", ".pt", ".pth", ".onnx", ".gguf", *_OTHER_FORMS)
_OWN_FOLDER = "$$TRITON_MODEL_DIRECTORY"


def estimated_bytes(folder: Path, message: ConfigMessage, versions: Sequence[int]) -> int:
    """The files of these versions and the weights that the configuration names, once for each instance."""
    parameters = {key: value.string_value for key, value in message.parameters.items()}
    size = 0
    for version in versions:
        version_dir = folder / str(version)
        own = version_dir if os.path.isdir(version_dir) else folder
        size += _tree_bytes(own)
        inside = os.path.realpath(own)
        places = {place for place in _named(parameters, folder, version_dir) if not place.is_relative_to(inside)}
        size += sum(map(_weight_bytes, places))
    return size * instance_count(message)


def instance_count(message: ConfigMessage) -> int:
    """The processes that each load the model."""
    return sum(max(1, group.count) * max(1, len(group.gpus)) for group in message.instance_group) or 1


def _tree_bytes(folder: Path) -> int:
    by_folder: dict[str, list[tuple[str, int]]] = defaultdict(list)
    try:
        for path, is_folder, _, size in tree_entries(str(folder)):
            if not is_folder:
                by_folder[os.path.dirname(path)].append((path, size))
    except OSError:  # the load says what is wrong
        return 0
    return sum(map(_one_form_bytes, by_folder.values()))


def _weight_bytes(place: Path) -> int:
    """A file, or those files of a folder that look like weights: what else lies there is none of the model's."""
    try:
        if os.path.isfile(place):
            return place.stat().st_size
        return _one_form_bytes((name.name, name.stat().st_size) for name in place.iterdir() if name.suffix in _WEIGHTS)
    except OSError:
        return 0


def _one_form_bytes(files: Iterable[tuple[str, int]]) -> int:
    found = list(files)
    has_safetensors = any(name.endswith(".safetensors") for name, _ in found)
    return sum(size for name, size in found if not (has_safetensors and name.endswith(_OTHER_FORMS)))


def _named(parameters: Mapping[str, str], folder: Path, version_dir: Path) -> Iterator[Path]:
    """The files and folders that parameters name, as models read such names."""
    for key, value in parameters.items():
        is_hub_name = key in _HUB_PARAMETERS
        if key == _ENVIRONMENT_PARAMETER or "\0" in value or not (is_hub_name or "/" in value or "." in value):
            continue
        named = os.path.expanduser(value.replace(_OWN_FOLDER, str(folder), 1))
        places = [Path(named)] if os.path.isabs(named) else [version_dir / named, folder / named]
        if is_hub_name:
            places += cached_snapshots(named, os.environ)
        found = next((place for place in places if os.path.exists(place)), None)  # False for too long a name
        if found is not None:
            yield Path(os.path.realpath(found))
