"""Inference bodies on HTTP: a JSON document with binary tensor data behind it, raw requests, and the answers."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Final

import orjson

from trireme.core.datatype import BYTES, ITEM_SIZE, Parameter
from trireme.core.elements import Buffer, element_count
from trireme.core.errors import InvalidArgumentError
from trireme.core.request import ReadRegion
from trireme.core.response import NO_SEQUENCE
from trireme.core.tensor import Tensor
from trireme.protocol.bounded_cache import BoundedCache
from trireme.protocol.json_codec.tensor import encode_elements, encode_numbers, number_layout, pack_string
from trireme.protocol.json_codec.text import encode_scalar, encode_string
from trireme.protocol.v2.json_document import InferDocument, decode_document

COPY_LIMIT_BYTES: Final = 4096
"""Tensors up to this size are copied out of the body: that is cheaper than a view of it."""

_dumps: Final = orjson.dumps
_NO_SEQUENCE: Final = orjson.dumps(NO_SEQUENCE)
_ID_PREFIX: Final = b'{"id":"'
_REGION: Final = b'"shared_memory_region"'
_MAX_CACHED_DOCUMENT_BYTES: Final = 16384
_IN_JSON: Final = -1
_IN_REGION: Final = -2
"""What stands for the size of a tensor that does not follow the answer's JSON."""

RAW_DOCUMENT: Final = InferDocument()
"""What a raw request says: nothing, and it wants binary outputs."""
RAW_DOCUMENT.is_binary_by_default = RAW_DOCUMENT.is_all_binary = True


class InferDecoder:
    """Decodes documents and remembers those without data, because clients repeat them byte for byte."""

    __slots__ = ("_documents", "_has_regions", "_max_input_size_bytes")

    def __init__(self, max_input_size_bytes: int, has_regions: bool = False) -> None:
        self._max_input_size_bytes = max_input_size_bytes
        self._has_regions = has_regions  # whether tensors may be in shared memory
        self._documents: BoundedCache[bytes, InferDocument] = BoundedCache()

    def decode(self, text: bytes, is_alone: bool) -> tuple[InferDocument, str]:
        """The document and the request's id, which a remembered document does not know. A text that is alone, with
        no binary data behind it, holds its data itself, unless it is in shared memory, and is not looked for among
        the remembered. Raises ServingError, or SlowTextError where the text takes long to read."""
        document: InferDocument | None
        if is_alone and not (self._has_regions and _REGION in text):
            document = decode_document(text, self._max_input_size_bytes, True)
            return document, document.request_id
        if not text.startswith(_ID_PREFIX):
            document = self._documents.get(text)
            if document is None:
                document = self._decode_new(text, text)
            return document, document.request_id
        end = text.find(b'"', 7)
        request_id = text[7:end].decode("utf-8", "surrogateescape") if end > 0 else "\\"
        if "\\" in request_id or not request_id.isprintable():
            document = decode_document(text, self._max_input_size_bytes, True)
            return document, document.request_id
        document = self._documents.get(text[end:])
        if document is None:
            document = self._decode_new(text, text[end:])
        return document, request_id

    def _decode_new(self, text: bytes, key: bytes) -> InferDocument:
        document = decode_document(text, self._max_input_size_bytes, True)
        if len(text) <= _MAX_CACHED_DOCUMENT_BYTES and all(entry.data is None for entry in document.inputs):
            self._documents.keep(key, document, 2 * len(text))
        return document


def split_body(body: Buffer, header_length: int | None) -> tuple[bytes, int]:
    """The document's text and the offset of the binary data behind it."""
    if header_length is None:
        return body if isinstance(body, bytes) else bytes(body), len(body)
    if not 0 <= header_length <= len(body):
        raise InvalidArgumentError(f"inference header size should be in range (0, {len(body)}), got: {header_length}")
    return _cut(body, 0, header_length), header_length


def _cut(body: Buffer, start: int, end: int) -> bytes:
    """A copy of that part."""
    return body[start:end] if isinstance(body, bytes) else bytes(body[start:end])


def take_tensors(
    document: InferDocument, body: Buffer, offset: int, model_name: str, read_region: ReadRegion | None = None
) -> dict[str, Tensor]:
    """The inputs in the document's order, with the binary data that begins at the offset dealt out to them; those in
    shared memory are read where they are."""
    tensors: dict[str, Tensor] = {}
    total = len(body)
    for entry in document.inputs:
        data: Buffer | None = entry.data
        if data is None:
            place = entry.place
            if place is not None:
                assert read_region is not None
                data = read_region(place.region, place.offset, place.size_bytes)
                tensors[entry.name] = Tensor(entry.name, entry.datatype, entry.shape, data)
                continue
            size = entry.size_bytes
            end = offset + size
            if end > total:
                raise InvalidArgumentError(
                    f"unexpected size for input '{entry.name}', expecting {end - total} additional bytes "
                    f"for model '{model_name}'"
                )
            data = _cut(body, offset, end) if size <= COPY_LIMIT_BYTES else memoryview(body)[offset:end]
            offset = end
        tensors[entry.name] = Tensor(entry.name, entry.datatype, entry.shape, data)
    if offset != total:
        raise InvalidArgumentError(f"unexpected additional input data for model '{model_name}'")
    return tensors


def take_raw_tensor(
    body: Buffer, model_name: str, inputs: Sequence[tuple[str, str, tuple[int, ...]]], is_batched: bool
) -> Tensor:
    """The single input of a raw request, its shape deduced from (name, datatype, dims) and the body's size."""
    if len(inputs) != 1:
        raise InvalidArgumentError(
            f"Raw request must only have 1 input (found 1) to be deduced but got {len(inputs)} inputs "
            f"in '{model_name}' model configuration"
        ).for_request("")
    name, datatype, dims = inputs[0]
    batch = (1,) if is_batched else ()
    if datatype == BYTES:
        if dims != (1,):
            raise InvalidArgumentError(
                f"For BYTE datatype raw input '{name}', the model must have input shape [1]"
            ).for_request("")
        return Tensor(name, datatype, (*batch, 1), pack_string(bytes(body)))
    if dims.count(-1) > 1:
        raise InvalidArgumentError(
            f"The shape of the raw input '{name}' can not be deduced because there are more than one "
            "variable-sized dimension"
        ).for_request("")
    fixed = element_count(dim for dim in dims if dim != -1) * ITEM_SIZE[datatype]
    variable = len(body) // fixed if fixed else 0
    shape = (*batch, *(variable if dim == -1 else dim for dim in dims))
    return Tensor(name, datatype, shape, memoryview(body) if len(body) > COPY_LIMIT_BYTES else bytes(body))


class _Entry:
    """What is the same in all answers with an output of this name, datatype and shape."""

    __slots__ = ("_layout", "text")

    def __init__(self, text: bytes, layout: Struct | None) -> None:
        self.text = text
        self._layout = layout

    def encode_data(self, tensor: Tensor) -> bytes:
        """The elements as a JSON list; raises ServingError."""
        if self._layout is not None:
            try:
                return encode_numbers(self._layout, tensor.data)
            except StructError:  # what is wrong with it is found out below
                pass
        return encode_elements(tensor)


class InferEncoder:
    """Encodes answers; remembers the fragments that are the same from answer to answer."""

    __slots__ = ("_entries", "_models")

    def __init__(self) -> None:
        self._models: BoundedCache[tuple[str, str], bytes] = BoundedCache()
        self._entries: BoundedCache[tuple[str, str, tuple[int, ...], int], _Entry] = BoundedCache()

    def encode(
        self,
        model: tuple[str, str],
        request_id: str,
        outputs: Sequence[Tensor],
        parameters: dict[str, Parameter] | None,
        document: InferDocument,
    ) -> tuple[bytes, list[Buffer]]:
        """The JSON and the binary buffers behind it; `model` is the name and the version that answered."""
        prefix = self._models.get(model) or self._make_prefix(model)
        if request_id:
            prefix = b'{"id":%b,%b' % (encode_string(request_id), prefix[1:])
        if parameters:
            written = _NO_SEQUENCE if parameters is NO_SEQUENCE else encode_parameters(parameters)
            prefix += b'"parameters":' + written + b","
        pieces = [prefix, b'"outputs":[']
        buffers: list[Buffer] = []
        requested = document.outputs
        for tensor in outputs:
            is_binary = document.is_binary_by_default
            is_placed = False
            if requested:
                requested_output = requested.get(tensor.name)
                if requested_output is None:
                    continue
                is_binary = requested_output.is_binary
                is_placed = requested_output.place is not None
            data = tensor.data
            size = _IN_REGION if is_placed else len(data) if is_binary else _IN_JSON
            key = (tensor.name, tensor.datatype, tuple(tensor.shape), size)
            entry = self._entries.get(key) or self._make_entry(key)
            if len(pieces) > 2:
                pieces.append(b",")
            pieces.append(entry.text)
            if size == _IN_JSON:
                pieces.append(entry.encode_data(tensor))
                pieces.append(b"}")
            elif size > 0:
                buffers.append(data)
        pieces.append(b"]}")
        return b"".join(pieces), buffers

    def _make_entry(self, key: tuple[str, str, tuple[int, ...], int]) -> _Entry:
        name, datatype, shape, size = key
        if size >= 0:
            tail = b',"parameters":{"binary_data_size":%d}}' % size
        else:
            tail = b',"data":' if size == _IN_JSON else b"}"
        text = b'{"name":%b,"datatype":"%b","shape":%b%b' % (
            encode_string(name),
            datatype.encode(),
            orjson.dumps(shape),
            tail,
        )
        entry = _Entry(text, number_layout(datatype, shape) if size == _IN_JSON else None)
        self._entries.keep(key, entry, 2 * len(text))
        return entry

    def _make_prefix(self, model: tuple[str, str]) -> bytes:
        text = b'{"model_name":%b,"model_version":%b,' % (encode_string(model[0]), encode_string(model[1]))
        self._models.keep(model, text, 2 * len(text))
        return text


def encode_parameters(parameters: dict[str, Parameter]) -> bytes:
    """Response parameters as an object."""
    try:
        text = _dumps(parameters)
        if b"null" not in text:  # which may stand for a number that is not finite
            return text
    except orjson.JSONEncodeError:  # a string that is not UTF-8
        pass
    return b"{%b}" % b",".join(
        b"%b:%b" % (encode_string(name), encode_scalar(value)) for name, value in parameters.items()
    )
