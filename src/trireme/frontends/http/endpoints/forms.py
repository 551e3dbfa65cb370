"""Requests that come as forms: read beside the event loop, pictures decoded in processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from trireme.core.errors import CancelledError, UnsupportedMediaError
from trireme.core.tensor import Tensor
from trireme.frontends.http.background import BackgroundAnswers
from trireme.frontends.http.endpoints.unread import refuse_unread
from trireme.frontends.http.exchange import Exchange
from trireme.protocol.http1.compression import IDENTITY
from trireme.protocol.v2.form import FormDocument, decode_form
from trireme.protocol.v2.generate import InputForm
from trireme.server.call import CalledModel
from trireme.server.pictures.picture_input import PictureInput

if TYPE_CHECKING:
    from trireme.server.server import InferenceServer

Then = Callable[[FormDocument], None]


class FormReader:
    """For the endpoints that take forms besides JSON. Errors are told as JSON."""

    def __init__(self, server: InferenceServer, max_input_size_bytes: int, background: BackgroundAnswers) -> None:
        self._calls = server.calls
        self._decoder = server.pictures
        self._max_input_size_bytes = max_input_size_bytes
        self._background = background

    def read(self, exchange: Exchange, call: CalledModel, then: Then) -> None:
        """Calls `then` with what the form says, all of its inputs being tensors."""
        head = exchange.head
        if head.content_encoding != IDENTITY:
            raise UnsupportedMediaError("a form is sent as it is, without Content-Encoding")
        if call.is_loading:  # its inputs, which the form is read by, are known for sure once it is loaded
            self._background.run(exchange, self._read_when_loaded(exchange, then))
            return
        picture = call.picture_input()
        read = partial(
            decode_form,
            bytes(exchange.body),
            head.form_boundary or b"",
            input_forms(call),
            picture.name if picture is not None else "",
            self._max_input_size_bytes,
        )
        go_on = partial(self._decode_pictures, exchange, picture, then)
        refuse = partial(refuse_unread, self._calls, exchange, head.model_name, head.model_version)
        self._background.ordered_work(exchange, refuse).compute(read, go_on)

    async def _read_when_loaded(self, exchange: Exchange, then: Then) -> None:
        head = exchange.head
        await self._calls.wait_until_loaded(head.model_name, head.model_version)
        if not exchange.is_abandoned:
            self.read(exchange, self._calls.open(head.model_name, head.model_version), then)

    def _decode_pictures(
        self, exchange: Exchange, picture: PictureInput | None, then: Then, form: FormDocument
    ) -> None:
        if picture is None or not form.pictures:
            then(form)
            return
        tensor_bytes = len(form.pictures) * picture.item_size_bytes
        exchange.hold(tensor_bytes)
        size_bytes = len(exchange.body) + tensor_bytes
        self._decoder.reserve(size_bytes)
        decode = partial(self._decode, exchange, form.pictures, picture, size_bytes)
        head = exchange.head
        refuse = partial(refuse_unread, self._calls, exchange, head.model_name, head.model_version)
        self._background.picture_work(exchange, refuse).compute(decode, partial(_take_tensor, form, then))

    def _decode(
        self, exchange: Exchange, files: Sequence[memoryview], picture: PictureInput, size_bytes: int
    ) -> Tensor:
        """On a thread; what has no client any more is not begun."""
        try:
            if exchange.is_abandoned:
                raise CancelledError("the client has left")
            return self._decoder.tensor(files, picture)
        finally:
            self._decoder.release(size_bytes)


def _take_tensor(form: FormDocument, then: Then, tensor: Tensor) -> None:
    form.pictures = []
    form.inputs[tensor.name] = tensor
    then(form)


def input_forms(call: CalledModel) -> dict[str, InputForm]:
    """The model's inputs as metadata describes them."""
    batch = (-1,) if call.has_batch else ()
    return {name: (datatype, batch + dims) for name, datatype, dims in call.inputs()}
