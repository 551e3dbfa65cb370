"""The tensors of a classic model: what the configuration says of them, and what a trial with one row shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trireme.backends.classic.predictor import OutputForm, Predictor
from trireme.backends.classic.results import as_rows, datatype_of
from trireme.backends.classic.table import TableReader, is_by_column
from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.compiled.tensor_spec import TensorSpec
from trireme.core.datatype import BYTES, NUMPY_DTYPE, from_config, to_config


def input_specs(config: Mapping[str, Any], predictor: Predictor) -> list[TensorSpec]:
    """Inputs have the names and the datatypes that the configuration gives them; their shapes are the model's."""
    entries = config.get("input") or []
    if not entries and not predictor.has_columns:
        datatype = BYTES if predictor.are_texts_wanted else predictor.datatype
        return [TensorSpec(predictor.input_name, datatype, (-1, _width(predictor)))]
    if not entries:
        return [TensorSpec(name, predictor.datatype_of(name), (-1, 1)) for name in predictor.column_names]
    width = 1 if is_by_column(entries, predictor) else _width(predictor)
    return [
        TensorSpec(entry["name"], _declared(entry, predictor.datatype_of(entry["name"])), (-1, width))
        for entry in entries
    ]


def output_specs(config: Mapping[str, Any], predictor: Predictor, inputs: list[TensorSpec]) -> list[TensorSpec]:
    """What the configuration asks for, or what is usual. Among numbers the configuration's datatype counts."""
    entries = {entry["name"]: entry for entry in config.get("output") or []}
    if unknown := [name for name in entries if name not in predictor.methods]:
        raise ModelLoadError(
            f"unexpected inference output '{unknown[0]}' in the configuration of model '{config['name']}', allowed "
            f"outputs are: {', '.join(predictor.methods)}"
        )
    specs = []
    for name in entries or predictor.usual_outputs:
        form = _tried(config, predictor, inputs, name, entries.get(name))
        datatype = _declared(entries.get(name, {}), form.datatype)
        if form.datatype == BYTES or datatype == BYTES:
            datatype = form.datatype
        specs.append(TensorSpec(name, datatype, (-1, *form.dims)))
    return specs


def _declared(entry: Mapping[str, Any], usual: str) -> str:
    name = entry.get("data_type", "TYPE_INVALID")
    return usual if name == "TYPE_INVALID" else from_config(name)


def _width(predictor: Predictor) -> int:
    return 1 if predictor.are_texts_wanted else predictor.column_count or -1


def _tried(
    config: Mapping[str, Any],
    predictor: Predictor,
    inputs: list[TensorSpec],
    name: str,
    entry: Mapping[str, Any] | None,
) -> OutputForm:
    """The form of what the method returns for a row of zeros, or of empty texts."""
    try:
        result = as_rows(predictor.methods[name](_trial_table(config, predictor, inputs)))
        return OutputForm(datatype_of(result), result.shape[1:])
    except Exception as error:
        if entry is not None and entry.get("dims") and "data_type" in entry:
            return OutputForm(from_config(entry["data_type"]), tuple(int(dim) for dim in entry["dims"]))
        if name in predictor.likely_outputs:
            return predictor.likely_outputs[name]
        raise ModelLoadError(
            f"what model '{config['name']}' returns for '{name}' is not known, because a trial with zeros failed "
            f"({type(error).__name__}: {error}); list its inputs and outputs with their data_type and dims in "
            "config.pbtxt"
        ) from error


def _trial_table(config: Mapping[str, Any], predictor: Predictor, inputs: list[TensorSpec]) -> Any:
    declared = [{"name": spec.name, "data_type": to_config(spec.datatype)} for spec in inputs]
    arrays = {}
    for spec in inputs:
        shape = (1, *(max(dim, 1) for dim in (spec.shape or ())[1:]))
        if spec.datatype == BYTES:
            arrays[spec.name] = np.full(shape, b"", dtype=np.object_)
        else:
            arrays[spec.name] = np.zeros(shape, dtype=NUMPY_DTYPE[spec.datatype])
    return TableReader({"name": config["name"], "input": declared}, predictor).table(arrays)
