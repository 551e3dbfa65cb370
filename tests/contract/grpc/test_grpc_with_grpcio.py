"""grpcio as the client: inference, metadata, compression, deadlines, cancellation, large messages, TLS, shutdown."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from waiting import until

from trireme.core.errors import ErrorKind, ServingError
from trireme.frontends.grpc.frontend import GrpcFrontend
from trireme.frontends.grpc.options import GrpcFrontendOptions


@pytest.fixture
def stub(channel):
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


def test_an_inference_with_metadata_and_timeout(stub, infer_request) -> None:
    response = stub.ModelInfer(infer_request(request_id="a"), timeout=5, metadata=(("x-a", "1"), ("y-bin", b"\0\xff")))
    assert response.id == "a"
    assert response.raw_output_contents == [bytes(16)]


def test_many_calls_at_once_on_one_connection(stub, infer_request) -> None:
    futures = [stub.ModelInfer.future(infer_request("later", str(n))) for n in range(200)]
    assert [future.result(10).id for future in futures] == [str(n) for n in range(200)]


@pytest.mark.parametrize("size", [70_000, 1 << 20, 20_000_000])
def test_large_messages_both_ways(stub, infer_request, size) -> None:
    data = (bytes(range(256)) * (size // 256 + 1))[: size // 4 * 4]
    response = stub.ModelInfer(infer_request(data=data), timeout=60)
    assert response.raw_output_contents[0] == data


def test_large_messages_of_several_calls_share_the_connection(stub, infer_request) -> None:
    requests = [infer_request(data=bytes((n,)) * 2_000_000) for n in range(6)]
    futures = [stub.ModelInfer.future(request) for request in requests]
    for request, future in zip(requests, futures, strict=True):
        assert future.result(30).raw_output_contents == request.raw_input_contents


def test_error_texts_arrive_as_they_were(stub, infer_request) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(infer_request("broken"))
    assert caught.value.code() == grpc.StatusCode.INTERNAL
    assert caught.value.details() == "the model said: 100% wrong\nline two é"


def test_unknown_methods_are_unimplemented(channel) -> None:
    for path in ("/inference.GRPCInferenceService/Nope", "/other.Service/Call"):
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(path)(b"")
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
@pytest.mark.parametrize("level", ["none", "low", "high"])
def test_compression_both_ways(listen, infer_request, algorithm, level) -> None:
    with listen(infer_response_compression_level=level).channel() as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        response, call = stub.ModelInfer.with_call(infer_request(data=bytes(40_000)), compression=algorithm)
        assert response.raw_output_contents == [bytes(40_000)]
        replies = list(stub.ModelStreamInfer(iter([infer_request(data=bytes(40_000))] * 3), compression=algorithm))
        assert [reply.infer_response.raw_output_contents[0] for reply in replies] == [bytes(40_000)] * 3
        assert call.code() == grpc.StatusCode.OK


def test_a_deadline_is_told_and_cancels(listener, stub, infer_request) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.ModelInfer(infer_request("held"), timeout=0.2)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: len(listener.server.inference.cancelled) == 1)


def test_a_cancelled_call_cancels_its_request(listener, stub, infer_request) -> None:
    future = stub.ModelInfer.future(infer_request("held"))
    until(lambda: listener.server.inference.held)
    future.cancel()
    until(lambda: len(listener.server.inference.cancelled) == 1)
    until(lambda: listener.frontend.call_count == 0)


def test_a_closed_channel_cancels_everything(listener, infer_request) -> None:
    channel = listener.channel()
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    futures = [stub.ModelInfer.future(infer_request("held")) for _ in range(3)]
    until(lambda: len(listener.server.inference.held) == 3)
    channel.close()
    until(lambda: len(listener.server.inference.cancelled) == 3)
    until(lambda: all(future.done() for future in futures))
    until(lambda: listener.frontend.connection_count == 0)


def test_a_bidirectional_stream(stub, infer_request) -> None:
    def requests():
        for number in range(50):
            yield infer_request("later", str(number))

    replies = list(stub.ModelStreamInfer(requests(), timeout=20))
    assert [reply.infer_response.id for reply in replies] == [str(number) for number in range(50)]


def test_a_decoupled_stream_with_many_responses(stub, infer_request) -> None:
    replies = list(stub.ModelStreamInfer(iter([infer_request("repeat", data=bytes(4 * 5000))]), timeout=20))
    assert len(replies) == 5000


def test_a_cancelled_stream_cancels_its_requests(listener, stub, infer_request) -> None:
    stream = stub.ModelStreamInfer(iter([infer_request("endless"), infer_request("endless")]))
    next(stream)
    until(lambda: len(listener.server.inference.held) == 2)
    stream.cancel()
    until(lambda: len(listener.server.inference.cancelled) == 2)


def test_grpc_aio(listener, infer_request) -> None:
    async def work() -> None:
        async with grpc.aio.insecure_channel(listener.address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            responses = await asyncio.gather(*(stub.ModelInfer(infer_request(request_id=str(n))) for n in range(50)))
            assert [response.id for response in responses] == [str(n) for n in range(50)]
            stream = stub.ModelStreamInfer()
            for number in range(5):
                await stream.write(infer_request(request_id=str(number)))
                assert (await stream.read()).infer_response.id == str(number)
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
            assert await stream.code() == grpc.StatusCode.OK

    asyncio.run(work())


def test_a_taken_port_is_unavailable(listener) -> None:
    options = GrpcFrontendOptions(address="127.0.0.1", port=listener.frontend.port)
    with pytest.raises(ServingError) as caught:
        listener.run(GrpcFrontend(listener.server, options).start())
    assert caught.value.kind == ErrorKind.UNAVAILABLE
    assert caught.value.message == f"Socket '127.0.0.1:{options.port}' already in use "


def test_shutdown_finishes_calls_and_refuses_new_ones(listener, stub, infer_request) -> None:
    future = stub.ModelInfer.future(infer_request("held"))
    until(lambda: listener.server.inference.held)
    listener.call(listener.frontend.stop_accepting)
    with pytest.raises(grpc.RpcError) as caught:
        stub.ServerLive(service_pb2.ServerLiveRequest())
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert caught.value.details() == "GRPC server is shutting down and has stopped accepting new requests."
    closing = asyncio.run_coroutine_threadsafe(listener.frontend.close(5), listener.loop)
    time.sleep(0.1)
    assert not closing.done()
    listener.call(listener.server.inference.release, listener.server.inference.held[0])
    assert future.result(5).model_name == "held"
    closing.result(5)
    assert listener.frontend.call_count == 0


def test_shutdown_without_patience_cancels(listener, stub, infer_request) -> None:
    future = stub.ModelInfer.future(infer_request("held"))
    until(lambda: listener.server.inference.held)
    listener.run(listener.frontend.close(0.05))
    assert len(listener.server.inference.cancelled) == 1
    assert future.exception(5).code() == grpc.StatusCode.UNAVAILABLE


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificates")
    folder = tmp_path_factory.mktemp("tls")
    command = f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command.split(), *names], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("is_mutual", [False, True])
def test_tls(listen, certificates, infer_request, is_mutual) -> None:
    key, cert = certificates / "key.pem", certificates / "cert.pem"
    flags = {"use_ssl": True, "use_ssl_mutual": is_mutual, "root_cert": str(cert)}
    listener = listen(server_key=str(key), server_cert=str(cert), **flags)
    whole = grpc.ssl_channel_credentials(cert.read_bytes(), key.read_bytes(), cert.read_bytes())
    with grpc.secure_channel(listener.address, whole) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        data = bytes(range(256)) * 8192
        assert stub.ModelInfer(infer_request(data=data), timeout=20).raw_output_contents == [data]
    if is_mutual:
        anonymous = grpc.ssl_channel_credentials(cert.read_bytes())
        with grpc.secure_channel(listener.address, anonymous) as channel, pytest.raises(grpc.RpcError) as caught:
            service_pb2_grpc.GRPCInferenceServiceStub(channel).ServerLive(service_pb2.ServerLiveRequest(), timeout=5)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


def test_the_front_end_imports_no_grpcio() -> None:
    code = "import sys, trireme.frontends.grpc.frontend; assert 'grpc' not in sys.modules, 'grpcio was imported'"
    subprocess.run([sys.executable, "-c", code], check=True)
