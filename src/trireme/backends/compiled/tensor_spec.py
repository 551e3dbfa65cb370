"""What a model's file says of its tensors, written into the configuration or held against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.python.pb_utils.model_config import ModelConfig
from trireme.core.datatype import to_config


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output as the file has it."""

    name: str
    datatype: str
    """Wire name."""
    shape: tuple[int, ...] | None
    """With the batch dimension, -1 where variable; None where even the rank is open."""
    is_optional: bool = False


def complete_config(
    config: ModelConfig, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], default_max_batch_size: int
) -> ModelConfig:
    """Fills in the batch size, the tensors and the dynamic batcher where the configuration leaves them open."""
    form = config.as_dict()
    hidden = _hidden_names(form)
    inputs = [spec for spec in inputs if spec.name not in hidden]
    outputs = [spec for spec in outputs if spec.name not in hidden]
    firsts = [spec.shape and spec.shape[0] for spec in (*inputs, *outputs) if not spec.is_optional]
    if (
        not form.get("max_batch_size")
        and all(first == -1 for first in firsts)
        and _leaves_batch_out(form.get("input", ()), inputs)
        and _leaves_batch_out(form.get("output", ()), outputs)
    ):
        form["max_batch_size"] = default_max_batch_size
    is_batching = bool(form.get("max_batch_size"))
    if is_batching and not all(first in (-1, None) for first in firsts):
        raise ModelLoadError(
            f"autofill failed for model '{form['name']}': model does not support batching while non-zero "
            "max_batch_size is specified"
        )
    form["input"] = _completed(form.get("input", []), inputs, is_batching)
    form["output"] = _completed(form.get("output", []), outputs, is_batching)
    if form.get("max_batch_size", 0) > 1 and not any(
        choice in form for choice in ("dynamic_batching", "sequence_batching", "ensemble_scheduling")
    ):
        config.set_dynamic_batching()
    return config


def check_config(config: Mapping[str, Any], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
    """Raises ModelLoadError where the configuration does not fit the file."""
    name = config["name"]
    declared = [entry["name"] for entry in config["input"]]
    needed = [spec.name for spec in inputs if not spec.is_optional and spec.name not in _hidden_names(config)]
    if missing := [entry for entry in needed if entry not in declared]:
        raise ModelLoadError(
            f"unable to load model '{name}', configuration expects {len(declared)} inputs, model provides "
            f"{len(inputs)}: {_quoted(missing)} is missing in the configuration"
        )
    is_batching = config.get("max_batch_size", 0) > 0
    for kind, specs in (("input", inputs), ("output", outputs)):
        by_name = {spec.name: spec for spec in specs}
        for entry in config[kind]:
            spec = by_name.get(entry["name"])
            if spec is None:
                raise ModelLoadError(
                    f"unexpected inference {kind} '{entry['name']}' in the configuration of model '{name}', allowed "
                    f"{kind}s are: {', '.join(by_name)}"
                )
            _check_entry(name, kind, entry, spec, is_batching)


def _check_entry(model: str, kind: str, entry: Mapping[str, Any], spec: TensorSpec, is_batching: bool) -> None:
    if entry["data_type"] != to_config(spec.datatype):
        raise ModelLoadError(
            f"unable to load model '{model}', configuration expects datatype {entry['data_type']} for {kind} "
            f"'{spec.name}', model provides {to_config(spec.datatype)}"
        )
    if spec.shape is None:
        return
    dims = list(entry["reshape"]["shape"] if "reshape" in entry else entry["dims"])
    whole = [-1, *dims] if is_batching else dims
    fits = len(whole) == len(spec.shape) and all(
        -1 in pair or pair[0] == pair[1] for pair in zip(whole, spec.shape, strict=True)
    )
    if not fits and not (spec.shape == () and whole in ([], [1])):
        raise ModelLoadError(
            f"model '{model}', tensor '{spec.name}': the model expects {len(spec.shape)} dimensions (shape "
            f"{_shape_text(spec.shape)}) but the model configuration specifies {len(whole)} dimensions (shape "
            f"{_shape_text(whole)})"
        )


def _leaves_batch_out(entries: Sequence[Mapping[str, Any]], specs: Sequence[TensorSpec]) -> bool:
    """Whether what is declared, if anything, has one dimension less than the file says."""
    ranks = {spec.name: len(spec.shape) for spec in specs if spec.shape is not None}
    declared = [entry for entry in entries if entry.get("dims") and entry["name"] in ranks]
    return all(
        len(entry["reshape"]["shape"] if "reshape" in entry else entry["dims"]) == ranks[entry["name"]] - 1
        for entry in declared
    )


def _completed(entries: list[dict[str, Any]], specs: Sequence[TensorSpec], is_batching: bool) -> list[dict[str, Any]]:
    """The declared tensors with their gaps filled, or where none is declared all that the file has."""
    if not entries:
        return [_entry_of(spec, is_batching) for spec in specs if not spec.is_optional]
    by_name = {spec.name: spec for spec in specs}
    for entry in entries:
        if entry["name"] in by_name:
            found = _entry_of(by_name[entry["name"]], is_batching)
            if entry.get("data_type", "TYPE_INVALID") == "TYPE_INVALID":
                entry["data_type"] = found["data_type"]
            if not entry.get("dims"):
                entry.update({key: found[key] for key in ("dims", "reshape") if key in found})
    return entries


def _entry_of(spec: TensorSpec, is_batching: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": spec.name, "data_type": to_config(spec.datatype)}
    if spec.shape is None:
        return entry | {"dims": [-1]}
    dims = list(spec.shape[1:] if is_batching else spec.shape)
    if dims:
        return entry | {"dims": dims}
    return entry | {"dims": [1]} | ({"reshape": {"shape": []}} if is_batching else {})


def _hidden_names(config: Mapping[str, Any]) -> set[str]:
    """Tensors that the sequence batcher provides or keeps, and that `input` and `output` do not name."""
    batching = config.get("sequence_batching", {})
    names = {control["name"] for control in batching.get("control_input", ())}
    for state in batching.get("state", ()):
        names |= {state["input_name"], state["output_name"]}
    return names


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _shape_text(shape: Sequence[int]) -> str:
    return "[" + ",".join(str(dim) for dim in shape) + "]"
