"""Requests as items, one for each row of their batch, and the outputs of items as responses again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trireme.backends.compiled.batching import LongPromptError, RequestError
from trireme.backends.python.pb_utils.errors import PromptTooLong, TritonError
from trireme.backends.python.pb_utils.logger import Logger
from trireme.backends.python.pb_utils.request import InferenceRequest, parameters_of
from trireme.backends.python.pb_utils.response import InferenceResponse
from trireme.backends.python.pb_utils.tensor import Tensor
from trireme.backends.transformers.forms import TEXTS, TaskForm
from trireme.core.close_names import closest

_WARNED_NAMES = 100


class ClientsLeftError(Exception):
    """Nobody waits for the answer any more: the model was ended, and has not failed."""


Outputs = Mapping[str, NDArray[Any]]
"""The outputs of one item, by name, without a batch dimension; texts as objects."""


class Emitter(Protocol):
    """Takes a text to its client while it is being written."""

    def __call__(self, text: str) -> None:
        """The next piece."""

    def end(self) -> None:
        """That was all of it, although others of the batch may go on."""


@dataclass(frozen=True, slots=True)
class Item:
    """One row of one request."""

    inputs: Mapping[str, Any]
    """A `str` or `bytes` for a single text or file, otherwise an array."""
    options: Mapping[str, Any]
    is_cancelled: Callable[[], bool]
    emit: Emitter | None = None
    """None where all of the text is wanted at the end."""

    def text(self, name: str) -> str:
        """A text input; raises RequestError where it is absent or not UTF-8."""
        value = self.inputs.get(name)
        if value is None:
            raise RequestError(f"input '{name}' is missing")
        return decoded(name, value)


def decoded(name: str, value: Any) -> str:
    """One element of a text input."""
    if isinstance(value, str):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as error:
        raise RequestError(f"input '{name}' is not UTF-8 text: {error}") from None


class ItemReader:
    """Takes requests apart."""

    def __init__(self, form: TaskForm, defaults: Mapping[str, Any], is_batching: bool) -> None:
        self._defaults = defaults
        self._is_batching = is_batching
        self._options = form.options
        self._input_options = {option.name: option for option in form.options if option.is_input}
        self._lists = {entry.name for entry in form.inputs if -1 in entry.dims}
        self._known = {name for option in form.options for name in (option.name, *option.aliases)}
        self._unknown: set[str] = set()  # parameters that no option has, and that were warned of

    def read(self, request: InferenceRequest, emit: Emitter | None = None) -> list[Item]:
        """The items of a request; raises RequestError."""
        arrays = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        if not self._is_batching:
            arrays = {name: array[None] for name, array in arrays.items()}
        if not arrays:
            raise RequestError("the request has no inputs")
        counts = {array.shape[0] for array in arrays.values()}
        if len(counts) != 1:
            raise RequestError("the inputs have batches of different sizes")
        if counts == {0}:
            raise RequestError("the request has no rows")
        options = self.options(request)
        return [self._item(arrays, row, options, request, emit) for row in range(counts.pop())]

    def options(self, request: InferenceRequest) -> dict[str, Any]:
        """The options among the request's parameters, over those of the configuration."""
        given = parameters_of(request)
        options = dict(self._defaults)
        if given:
            for option in self._options:
                for name in (option.name, *option.aliases):
                    if name in given:
                        options[option.name] = option.value_of(given[name])
                        break
            if not given.keys() <= self._known:
                self._warn_of(given.keys() - self._known)
        return options

    def _warn_of(self, names: set[str]) -> None:
        """Once for each name: a misspelt option would be left out in silence otherwise."""
        for name in sorted(names - self._unknown):
            if len(self._unknown) < _WARNED_NAMES:
                self._unknown.add(name)
                nearest = closest(name, self._known)
                known = f"its options are: {', '.join(sorted(self._known)) or 'none'}"
                hint = f"did you mean '{nearest}'?" if nearest is not None else known
                Logger.log_warn(f"the request parameter '{name}' is no option of this task and has no effect; {hint}")

    def _item(
        self,
        arrays: Mapping[str, NDArray[Any]],
        row: int,
        options: Mapping[str, Any],
        request: InferenceRequest,
        emit: Emitter | None,
    ) -> Item:
        inputs: dict[str, Any] = {}
        for name, array in arrays.items():
            option = self._input_options.get(name)
            values = array[row]
            if option is not None:
                texts = tuple(decoded(name, value) for value in values.ravel())
                options = {**options, name: option.value_of(texts if option.kind == TEXTS else texts[0])}
            elif values.dtype != np.object_ or (values.size != 1 and name in self._lists):
                inputs[name] = values
            elif values.size != 1:
                raise RequestError(f"input '{name}' must have one element in each row, found {values.size}")
            else:
                inputs[name] = values.ravel()[0]
        return Item(inputs, options, request.is_cancelled, emit)


def text_array(texts: Sequence[str]) -> NDArray[Any]:
    """Texts as a tensor has them."""
    array = np.empty(len(texts), dtype=np.object_)
    array[:] = texts
    return array


def response_of(rows: Sequence[Outputs], wanted: set[str], is_batching: bool) -> InferenceResponse:
    """One response of the rows of a request."""
    tensors = []
    for name in rows[0]:
        if name in wanted:
            array = _stacked([row[name] for row in rows]) if is_batching else rows[0][name]
            tensors.append(Tensor(name, array))
    return InferenceResponse(tensors)


def error_response(error: Exception) -> InferenceResponse:
    """What the sender of a request is told that could not be served."""
    if isinstance(error, LongPromptError):
        return InferenceResponse(error=PromptTooLong(str(error)))
    if isinstance(error, RequestError):
        return InferenceResponse(error=TritonError(str(error), TritonError.INVALID_ARG))
    if isinstance(error, ClientsLeftError):
        return InferenceResponse(error=TritonError(str(error), TritonError.CANCELLED))
    text = str(error).strip() or type(error).__name__
    return InferenceResponse(error=TritonError(f"{type(error).__name__}: {text}"))


def _stacked(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Rows of one length; where they differ the shorter ones end in empty texts or zeros."""
    if len(arrays) == 1:
        return arrays[0][None]
    shape = tuple(max(sizes) for sizes in zip(*(array.shape for array in arrays), strict=True))
    stacked = np.zeros((len(arrays), *shape), dtype=arrays[0].dtype)
    if stacked.dtype == np.object_:
        stacked.fill("")
    for row, array in zip(stacked, arrays, strict=True):
        row[tuple(slice(size) for size in array.shape)] = array
    return stacked
