"""`ModelInferRequest` bytes to a request: everything but tensor data is decoded once per distinct head.

Clients send the same names, shapes and parameters over and over; only the tensor data and the request id change. The
fields of a message are walked by hand, raw tensor data becomes slices of the message, the id is set apart, and the
remaining bytes, the head, are the key to an `InferTemplate` that protobuf parsed when the head was first seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError

from trireme.core.datatype import WIRE_NAMES
from trireme.core.elements import Buffer
from trireme.core.errors import InternalError, InvalidArgumentError, ServingError
from trireme.core.request import InferenceRequest, OutputParameters, ReadRegion, RegionPlace, RespondCallback
from trireme.core.tensor import Tensor
from trireme.proto import service_pb2
from trireme.protocol.bounded_cache import BoundedCache
from trireme.protocol.v2.grpc_contents import DecodedContents, decode_contents
from trireme.protocol.v2.grpc_parameters import RequestParameters, classification_count, region_place

_MAX_TEMPLATES_BYTES: Final = 4 << 20
_MAX_CACHED_HEAD_BYTES: Final = 4096
_SMALL_MESSAGE_BYTES: Final = 4096
_MAX_SHORT_FIELDS: Final = 256
_MAX_SHORT_HEAD_BYTES: Final = 16 << 10
_MAX_ID_BYTES: Final = 256 << 10  # four for each of the characters that an id may have
_UNKNOWN_DATATYPE: Final = "<invalid>"

_ID_TAG: Final = 0x1A
_RAW_TAG: Final = 0x3A
_HEAD_TAGS: Final = frozenset((0x0A, 0x12, 0x22, 0x2A, 0x32))
"""model_name, model_version, parameters, inputs, outputs, each with a length."""


class LongRequestError(Exception):
    """There is so much in a message besides raw data that it is to be read beside the event loop, by `decode_long`."""


class InferTemplate:
    """What a head says, ready to be joined with an id and data."""

    __slots__ = (
        "_contents",
        "_error",
        "_has_parameters",
        "_input_errors",
        "_inputs",
        "_is_plain",
        "_output_error",
        "_places",
        "_region_count",
        "has_regions",
        "model_name",
        "model_version",
        "output_parameters",
        "parameters",
        "requested_outputs",
    )

    def __init__(self, message: Any) -> None:
        self.model_name: str = message.model_name
        self.model_version: str = message.model_version
        self.parameters = RequestParameters()
        self.requested_outputs: tuple[str, ...] = tuple(dict.fromkeys(output.name for output in message.outputs))
        self._inputs = tuple(
            (entry.name, entry.datatype if entry.datatype in WIRE_NAMES else _UNKNOWN_DATATYPE, tuple(entry.shape))
            for entry in message.inputs
        )
        self._places: list[RegionPlace | None] = []  # beside the inputs
        self._error: ServingError | None = None
        self._output_error: ServingError | None = None
        self._input_errors: dict[str, ServingError] | None = None
        self._contents: tuple[Any, ...] | None = None
        if any(entry.HasField("contents") for entry in message.inputs):
            self._contents = tuple(entry.contents if entry.HasField("contents") else None for entry in message.inputs)
        self._read_parameters(message)
        self._read_inputs(message)
        self.output_parameters = self._read_outputs(message)
        self._region_count = sum(place is not None for place in self._places)
        self.has_regions = bool(
            self._region_count or (self.output_parameters is not None and self.output_parameters.places)
        )
        self._has_parameters = bool(message.parameters)
        self._is_plain = self._is_without_fault() and self._contents is None and len(self._inputs) == 1

    def _is_without_fault(self) -> bool:
        return self._error is None and self._output_error is None and self._input_errors is None

    @property
    def has_contents(self) -> bool:
        """Whether the head itself carries tensor data."""
        return self._contents is not None

    def decode_contents(self, pieces: Sequence[Iterable[Any]]) -> None:
        """Brings typed contents, of which each input has these pieces, into wire layout now, where that takes long, and
        not when the request is made."""
        if self._contents is not None:
            self._contents = tuple(
                None if typed is None else DecodedContents(own, name, datatype, self.model_name)
                for (name, datatype, _), typed, own in zip(self._inputs, self._contents, pieces, strict=True)
            )

    def with_regions(self, raw_contents: list[Buffer], read_region: ReadRegion) -> list[Buffer]:
        """The raw contents with the data of inputs in shared memory at their places among them, so that `request`
        finds all data in the order of the inputs; raises ServingError where there is no such memory."""
        if not self._region_count or self._error is not None or self._input_errors is not None:
            return raw_contents
        raws = iter(raw_contents)
        found: list[Buffer] = []
        for index, place in enumerate(self._places):
            data: Buffer | None
            if place is not None:
                data = read_region(place.region, place.offset, place.size_bytes)
            elif self._contents is not None and self._contents[index] is not None:
                continue
            else:
                data = next(raws, None)
                if data is None:
                    break
            found.append(data)
        found.extend(raws)
        return found

    def request(
        self, request_id: str, raw_contents: list[Buffer], respond: RespondCallback, forwarded: dict[str, str] | None
    ) -> InferenceRequest:
        """The request; raises the ServingError that the head or the lack of data deserves."""
        if self._is_plain and len(raw_contents) == 1:
            name, datatype, shape = self._inputs[0]
            inputs = {name: Tensor(name, datatype, shape, raw_contents[0])}
        else:
            inputs = self._all_inputs(request_id, raw_contents)
        request = InferenceRequest(self.model_name, self.model_version, request_id, inputs, respond)
        request.requested_outputs = self.requested_outputs
        request.output_parameters = self.output_parameters
        if self._has_parameters:
            self.parameters.apply(request)
        if forwarded:
            request.parameters.update(forwarded)
        return request

    def _all_inputs(self, request_id: str, raw_contents: list[Buffer]) -> dict[str, Tensor]:
        if self._error is not None:
            raise self._error.with_traceback(None)  # a kept error must not collect frames
        if self._contents is None and self._input_errors is None:
            if len(raw_contents) < len(self._inputs):
                raise self._no_data(self._inputs[len(raw_contents)][0])
            inputs = {}
            for (name, datatype, shape), data in zip(self._inputs, raw_contents, strict=False):
                inputs[name] = Tensor(name, datatype, shape, data)
        else:
            inputs = self._mixed_inputs(raw_contents)
        if len(inputs) < len(self._inputs):
            raise self._duplicate(request_id)
        if self._output_error is not None:
            raise self._output_error.with_traceback(None)
        return inputs

    def _read_parameters(self, message: Any) -> None:
        try:
            self.parameters = RequestParameters.decode(message.parameters)
        except ServingError as error:
            self._error = error

    def _read_inputs(self, message: Any) -> None:
        errors: dict[str, ServingError] = {}
        for entry in message.inputs:
            place = None
            try:
                if entry.parameters:
                    place = region_place(entry.name, entry.parameters)
                if place is not None and entry.HasField("contents"):
                    raise InvalidArgumentError(
                        f"unexpected 'content' provided when using shared memory for input tensor "
                        f"'{entry.name}' for model '{self.model_name}'"
                    )
            except ServingError as error:
                errors.setdefault(entry.name, error)
            self._places.append(place)
        self._input_errors = errors or None

    def _read_outputs(self, message: Any) -> OutputParameters | None:
        """What is wanted of outputs; None where they are wanted as they are."""
        counts: dict[str, int] = {}
        places: dict[str, RegionPlace] = {}
        try:
            for entry in message.outputs:
                if not entry.parameters:
                    continue
                count = classification_count(entry.parameters)
                place = region_place(entry.name, entry.parameters)
                if place is not None:
                    if count is not None:
                        raise InvalidArgumentError("output can't set both 'shared_memory_region' and 'classification'")
                    places[entry.name] = place
                if count is not None:
                    counts[entry.name] = count
        except ServingError as error:
            self._output_error = error
        return OutputParameters(counts, places) if counts or places else None

    def _mixed_inputs(self, raw_contents: list[Buffer]) -> dict[str, Tensor]:
        """The rare way: typed contents, or a parameter that is refused."""
        inputs = {}
        raws = iter(raw_contents)
        contents = self._contents or (None,) * len(self._inputs)
        for (name, datatype, shape), typed in zip(self._inputs, contents, strict=True):
            if self._input_errors is not None and name in self._input_errors:
                raise self._input_errors[name].with_traceback(None)
            if typed is None:
                data = next(raws, None)
                if data is None:
                    raise self._no_data(name)
            elif len(raw_contents) > self._region_count:
                raise InvalidArgumentError(
                    f"contents field must not be specified when using raw_input_contents for '{name}' "
                    f"for model '{self.model_name}'"
                )
            else:
                is_decoded = isinstance(typed, DecodedContents)
                data = typed.data() if is_decoded else decode_contents(typed, name, datatype, self.model_name)
            inputs[name] = Tensor(name, datatype, shape, data)
        return inputs

    def _no_data(self, name: str) -> ServingError:
        return InvalidArgumentError(
            f"unable to find data for input tensor '{name}' for model '{self.model_name}' in request."
        )

    def _duplicate(self, request_id: str) -> ServingError:
        seen = set()
        for name, _, _ in self._inputs:
            if name in seen:
                break
            seen.add(name)
        return InvalidArgumentError(f"input '{name}' already exists in request").for_request(request_id)


class InferRequestDecoder:
    """Decodes requests with one cache of templates, and a guess that a request looks like the one before it."""

    __slots__ = ("_after", "_before", "_last", "_templates")

    def __init__(self) -> None:
        self._templates: BoundedCache[bytes, InferTemplate] = BoundedCache(max_bytes=_MAX_TEMPLATES_BYTES)
        self._last: InferTemplate | None = None
        self._before = b""  # the last template's head in front of the id
        self._after = b""  # and behind it

    def decode(self, message: Buffer) -> tuple[InferTemplate, str, list[Buffer]]:
        """Template, id and raw tensor data; the data are slices of `message` where it is not small. Raises
        ServingError where the bytes are not such a message, LongRequestError where they take long to read."""
        try:
            if len(message) > _SMALL_MESSAGE_BYTES:
                message = memoryview(message)
            elif self._last is not None and type(message) is bytes and message.startswith(self._before):
                known = _split_as_before(message, len(self._before), self._after)
                if known is not None:
                    return self._last, *known
            runs, request_id, raw_contents = split(message, _MAX_SHORT_FIELDS)
        except (IndexError, UnicodeDecodeError):
            if len(message) > _MAX_SHORT_HEAD_BYTES:
                raise LongRequestError from None
            runs, request_id, raw_contents = split_by_parsing(message)
        head = runs[0] if len(runs) == 1 else b"".join(runs)
        if len(head) > _MAX_SHORT_HEAD_BYTES:
            raise LongRequestError
        template = self._templates.get(head)
        if template is None:
            template = self._parse(head)
        if len(runs) in (1, 2) and not template.has_contents:
            self._last = template
            self._before = runs[0]
            self._after = runs[1] if len(runs) == 2 else b""
        return template, request_id, raw_contents

    def _parse(self, head: bytes) -> InferTemplate:
        template = parse_head(head)
        if len(head) <= _MAX_CACHED_HEAD_BYTES and not template.has_contents:
            self._templates.keep(head, template, 2 * len(head))
        return template


def parse_head(head: bytes) -> InferTemplate:
    """The template of a head; raises ServingError where it is none."""
    try:
        return InferTemplate(service_pb2.ModelInferRequest.FromString(head))
    except DecodeError:
        raise InternalError("Unable to parse request") from None


def _split_as_before(message: bytes, position: int, after: bytes) -> tuple[str, list[Buffer]] | None:
    """Id and raw contents of a message that goes on, from `position`, with an id, these bytes and raw contents."""
    end = len(message)
    request_id = ""
    if position < end and message[position] == _ID_TAG:
        size = message[position + 1]
        start = position + 2
        position = start + size
        if size > 0x7F or position > end:
            return None
        request_id = str(message[start:position], "utf-8")
    if after:
        if not message.startswith(after, position):
            return None
        position += len(after)
    raw_contents: list[Buffer] = []
    while position < end:
        if message[position] != _RAW_TAG:
            return None
        size = message[position + 1]
        start = position + 2
        if size > 0x7F:
            size, start = _long_size(message, position + 1)
        position = start + size
        if position > end:
            raise IndexError
        raw_contents.append(message[start:position])
    return request_id, raw_contents


def split(message: Buffer, max_fields: int) -> tuple[list[bytes], str, list[Buffer]]:
    """The head in runs, id and raw contents; raises IndexError where a field runs out of the message or is one that no
    present client sends, LongRequestError where there are more than so many."""
    raw_contents: list[Buffer] = []
    runs: list[bytes] = []
    request_id = ""
    position = run_start = 0
    end = len(message)
    for _ in range(max_fields):
        if position >= end:
            break
        tag = message[position]
        size = message[position + 1]
        start = position + 2
        if size > 0x7F:
            size, start = _long_size(message, position + 1)
        stop = start + size
        if stop > end:
            raise IndexError
        if tag not in _HEAD_TAGS:
            if run_start < position:
                runs.append(bytes(message[run_start:position]))
            if tag == _RAW_TAG:
                raw_contents.append(message[start:stop])
            elif tag == _ID_TAG:
                request_id = id_of(message, start, stop)
            else:
                raise IndexError
            run_start = stop
        position = stop
    if position < end:
        raise LongRequestError
    if run_start < end:
        runs.append(bytes(message[run_start:end]))
    return runs, request_id, raw_contents


def id_of(message: Buffer, start: int, stop: int) -> str:
    """The id of a request; raises UnicodeDecodeError, or InvalidArgumentError where it is longer than any may be."""
    if stop - start > _MAX_ID_BYTES:
        raise InvalidArgumentError(
            f"the id of the request has {stop - start} bytes, more than the {_MAX_ID_BYTES} that it may have"
        )
    return str(message[start:stop], "utf-8")


def _long_size(message: Buffer, position: int) -> tuple[int, int]:
    size = shift = 0
    while True:
        byte = message[position]
        position += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size, position
        shift += 7
        if shift > 63:
            raise IndexError


def split_by_parsing(message: Buffer) -> tuple[list[bytes], str, list[Buffer]]:
    """The same for a message with fields that no present client sends, or that is none at all."""
    try:
        parsed = service_pb2.ModelInferRequest.FromString(bytes(message))
    except DecodeError:
        raise InternalError("Unable to parse request") from None
    raw_contents: list[Buffer] = list(parsed.raw_input_contents)
    request_id = parsed.id
    parsed.DiscardUnknownFields()
    parsed.ClearField("raw_input_contents")
    parsed.ClearField("id")
    return [parsed.SerializeToString(deterministic=True)], request_id, raw_contents
