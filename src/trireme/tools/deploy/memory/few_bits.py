"""Weights of few bits: how many numbers they stand for, and whether the device computes with them as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trireme.config.autofill import ENGINE_DESCRIPTION
from trireme.core.reading.json_levels import read_json
from trireme.machine.regular_files import read_regular
from trireme.tools.deploy.hub.model_files import ModelFiles
from trireme.tools.deploy.hub.weights import Weights

_NONE = "none"
_USUAL_BITS = 4
_BITS = ("bits", "w_bit", "num_bits")


def counted_apart(model: ModelFiles, weights: Weights, device: str, *, is_engine_served: bool) -> Weights:
    """The weights, of which the headers count words with several numbers in each where they are packed. The engine
    computes with them as they are on NVIDIA's GPUs alone; transformers is taken to do so anywhere."""
    form = _form_of(model)
    if not form:
        return weights
    count = _parameter_count(model)
    is_unpacked = is_engine_served and not device.startswith("cuda")
    if count is None:
        count = weights.stored_bytes * 8 // _bits_of(model.config)
    return replace(weights, parameter_count=count, is_exact=False, packed_as=form, is_unpacked=is_unpacked)


def _form_of(model: ModelFiles) -> str:
    """What `trireme build` or another program has made of the matrices; "": they are numbers one by one."""
    if model.folder is not None and any(file.name == ENGINE_DESCRIPTION for file in model.files):
        try:
            found = read_json(read_regular(model.folder / ENGINE_DESCRIPTION))
        except (OSError, ValueError):  # which the engine tells of
            return ""
        form = found.get("quantization") if isinstance(found, dict) else None
        return form if isinstance(form, str) and form != _NONE else ""
    made = _quantization(model.config)
    return str(made.get("quant_method") or "few bits") if made else ""


def _parameter_count(model: ModelFiles) -> int | None:
    """Of the matrices, as config.json has them; None where the engine does not know the architecture."""
    if model.folder is None:
        return None
    # Imported late: it takes a while, and few models need it.
    from trireme.llm.executors.limits import weight_count
    from trireme.llm.models.catalog import read_spec
    from trireme.llm.models.checkpoint import CheckpointError
    from trireme.llm.models.fields import UnsupportedModelError

    try:
        return weight_count(read_spec(model.folder))
    except (CheckpointError, UnsupportedModelError):
        return None


def _bits_of(config: Mapping[str, Any]) -> int:
    """Of most numbers, as far as the configuration says so."""
    found = next((made for name in _BITS if type(made := _quantization(config).get(name)) is int and made > 0), None)
    return found or _USUAL_BITS


def _quantization(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found = config.get("quantization_config")
    return found if isinstance(found, Mapping) else {}
