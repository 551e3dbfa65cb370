"""The signature in an MLmodel file: the columns of the table that the model takes, or its one tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trireme.backends.classic.predictor import Method, Predictor
from trireme.backends.compiled.model_load import ModelLoadError
from trireme.core.datatype import BYTES, from_numpy
from trireme.core.reading.json_levels import read_json

_DATATYPES = {
    "boolean": "BOOL",
    "integer": "INT32",
    "long": "INT64",
    "float": "FP32",
    "double": "FP64",
    "string": BYTES,
    "datetime": BYTES,
}


@dataclass(frozen=True, slots=True)
class Signature:
    """What is known of the inputs; nothing where the model was saved without a signature."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Wire names of datatypes by column."""
    times: tuple[str, ...] = ()
    """Columns with points in time, which come as text."""
    datatype: str | None = None
    """Of the one tensor, where there is one."""
    width: int | None = None

    def applied_to(self, predictor: Predictor) -> Predictor:
        """The predictor with the inputs that the signature has."""
        if self.datatype is not None:
            return replace(predictor, datatype=self.datatype, column_count=self.width or predictor.column_count)
        if not self.columns:
            return predictor
        return replace(
            predictor,
            methods={name: self._reading_times(method) for name, method in predictor.methods.items()},
            column_names=tuple(self.columns),
            column_count=len(self.columns),
            column_datatypes=self.columns,
        )

    def _reading_times(self, method: Method) -> Method:
        if not self.times:
            return method

        def predict(table: Any) -> Any:
            return method(table.astype(dict.fromkeys(self.times, "datetime64[ns]")))

        return predict


def read_signature(content: Mapping[str, Any], where: str) -> Signature:
    """Raises ModelLoadError for a type that no request can carry."""
    text = (content.get("signature") or {}).get("inputs")
    entries = read_json(text) if text else []
    if not entries:
        return Signature()
    if len(entries) == 1 and entries[0].get("type") == "tensor":
        return _of_tensor(entries[0]["tensor-spec"], where)
    columns = {}
    for place, entry in enumerate(entries):
        name = str(entry.get("name", place))
        datatype = _DATATYPES.get(str(entry.get("type")))
        if datatype is None:
            raise ModelLoadError(
                f"column '{name}' in the signature of '{where}' has the type '{entry.get('type')}', which no input "
                "has; load the model in a model.py of the python backend"
            )
        columns[name] = datatype
    times = tuple(str(entry.get("name", place)) for place, entry in enumerate(entries) if entry["type"] == "datetime")
    return Signature(columns=columns, times=times)


def _of_tensor(spec: Mapping[str, Any], where: str) -> Signature:
    shape = [int(dim) for dim in spec["shape"]]
    datatype = from_numpy(np.dtype(str(spec["dtype"])))
    if len(shape) != 2 or datatype is None:
        raise ModelLoadError(
            f"the signature of '{where}' has a tensor {spec['dtype']}{shape}; only those with rows and columns are "
            "served, others in a model.py of the python backend"
        )
    return Signature(datatype=datatype, width=shape[1] if shape[1] > 0 else None)
