"""A TorchServe, a TensorFlow Serving, a ranking and an echo service, small but real on the wire: each tells what it was
sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from meanwhile import serving

from trireme.tools.perf.wire.tensorflow_messages import (
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    PredictRequest,
    PredictResponse,
    SignatureDefMap,
)

FLOAT, STRING = 1, 7


@contextmanager
def torchserve(seen: list[tuple[str, bytes]]) -> Iterator[str]:
    """Answers predictions of the model `known` with the length of what came; `seen` gets paths and contents."""

    class Predictions(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
            (part,) = message_from_bytes(head + body).get_payload()
            content = part.get_payload(decode=True)
            seen.append((self.path, content))
            is_known = (
                self.path.startswith("/predictions/known")
                and part.get_param("name", header="content-disposition") == "data"
            )
            answer = b'{"length": %d}' % len(content) if is_known else b'{"code": 404, "message": "Model not found"}'
            text = b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n%b" % (200 if is_known else 404, len(answer), answer)
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Predictions)) as server:
        yield f"127.0.0.1:{server.server_port}"


@contextmanager
def ranking_service(seen: list[tuple[str, Any]], *, answers_junk_after: int | None = None) -> Iterator[str]:
    """Ranks passages as they came, on NVIDIA's path and Hugging Face's; `seen` gets paths and bodies."""

    class Rankings(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(404, {"error": "no models are listed"})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append((self.path, body))
            if answers_junk_after is not None and len(seen) > answers_junk_after:
                self._answer(200, {"message": "I am tired"})
            elif self.path == "/v1/ranking" and "passages" in body:
                self._answer(200, {"rankings": [{"index": n, "logit": -n} for n in range(len(body["passages"]))]})
            elif self.path == "/rerank" and "texts" in body:
                self._answer(200, [{"index": n, "score": 1 / (n + 1)} for n in range(len(body["texts"]))])
            else:
                self._answer(422, {"detail": "that is no ranking request"})

        def _answer(self, status: int, document: Any) -> None:
            text = json.dumps(document).encode()
            self.wfile.write(b"HTTP/1.1 %d OK\r\nContent-Length: %d\r\n\r\n%b" % (status, len(text), text))

        def log_message(self, format: str, *args: object) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Rankings)) as server:
        yield f"127.0.0.1:{server.server_port}"


@contextmanager
def tensorflow_serving(seen: list[Any]) -> Iterator[str]:
    """Has one signature with `x`, floats of any batch, and `words`, texts; answers `y`. `seen` gets the predictions."""

    def describe(request: Any, context: grpc.ServicerContext) -> Any:
        if request.model_spec.name != "known":
            context.abort(
                grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Latest({request.model_spec.name})"
            )
        found = SignatureDefMap()
        signature = found.signature_def["serving_default"]
        for name, datatype, dims in (("x", FLOAT, (-1, 4)), ("words", STRING, (-1, 2))):
            signature.inputs[name].dtype = datatype
            for dim in dims:
                signature.inputs[name].tensor_shape.dim.add(size=dim)
        signature.outputs["y"].dtype = FLOAT
        answer = GetModelMetadataResponse(model_spec=request.model_spec)
        answer.metadata["signature_def"].type_url = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
        answer.metadata["signature_def"].value = found.SerializeToString()
        return answer

    def predict(request: Any, context: grpc.ServicerContext) -> Any:
        seen.append(request)
        answer = PredictResponse()
        answer.outputs["y"].dtype = FLOAT
        answer.outputs["y"].float_val.extend([1.0, 2.5] * request.inputs["x"].tensor_shape.dim[0].size)
        return answer

    methods = {
        "GetModelMetadata": _method(describe, GetModelMetadataRequest),
        "Predict": _method(predict, PredictRequest),
    }
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("tensorflow.serving.PredictionService", methods),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def _method(answer: Any, request: Any) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(answer, request.FromString, lambda message: message.SerializeToString())


@contextmanager
def echo_service(seen: list[list[bytes]]) -> Iterator[str]:
    """`echo.Echo/Twice` answers each message of a stream twice, `echo.Echo/Refuse` nothing; `seen` gets the messages of
    each stream."""

    def twice(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        taken = []
        for message in messages:
            taken.append(message)
            yield message
            yield message
        seen.append(taken)

    def refuse(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "not for you")
        yield b""

    methods = {"Twice": grpc.stream_stream_rpc_method_handler(twice)}
    methods["Refuse"] = grpc.stream_stream_rpc_method_handler(refuse)
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo.Echo", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
