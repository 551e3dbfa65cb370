"""TLS on every port of a real server, with the official clients, and certificates that change while it runs."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from running_server import RunningServer, int_request, write_model

ECHO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]) for array in given]
"""
KINDS = ("http", "grpc", "metrics")


def make_certificate(folder: Path, name: str, *more: str) -> Path:
    """A certificate that signs itself, beside its key; both are named for it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", *more]
    subprocess.run([*command.split(), *names], cwd=folder, check=True, capture_output=True)
    return folder / f"{name}.pem"


def install(folder: Path, name: str) -> None:
    """Puts a certificate and its key in the server's place, as certbot does: by renaming."""
    for suffix in ("key", "pem"):
        shutil.copy(folder / f"{name}.{suffix}", folder / f"new.{suffix}")
        (folder / f"new.{suffix}").rename(folder / f"server.{suffix}")


def tls_flags(*kinds: str, is_mutual: bool = False) -> list[str]:
    flags = []
    for kind in kinds:
        flags += [f"--{kind}-use-ssl=true", f"--{kind}-server-cert=server.pem", f"--{kind}-server-key=server.key"]
        if is_mutual:
            flags += [f"--{kind}-use-ssl-mutual=true", f"--{kind}-root-cert=root.pem"]
    return flags


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path, "echo", ECHO)
    for name in ("first", "second"):
        make_certificate(tmp_path, name)
    install(tmp_path, "first")
    return tmp_path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("tls")
    write_model(folder, "echo", ECHO)
    make_certificate(folder, "server")
    with RunningServer(folder, *tls_flags(*KINDS)) as server:
        server.wait_until_listening()
        yield server


def certificate_of(server: RunningServer) -> Path:
    return server.log_path.parent / "server.pem"


def ask(
    server: RunningServer, port: str, path: str, root: Path, body: bytes | None = None, client: Path | None = None
) -> bytes:
    """One request over TLS by a client that trusts this root, and shows that certificate."""
    context = ssl.create_default_context(cafile=str(root))
    if client is not None:
        context.load_cert_chain(client, client.with_suffix(".key"))
    connection = http.client.HTTPSConnection("127.0.0.1", server.ports[port], timeout=30, context=context)
    try:
        connection.request("GET" if body is None else "POST", path, body)
        response = connection.getresponse()
        assert response.status == 200
        return response.read()
    finally:
        connection.close()


def test_tritonclient_speaks_http_over_tls(server: RunningServer) -> None:
    options = {"ca_certs": str(certificate_of(server))}
    client = httpclient.InferenceServerClient(
        f"localhost:{server.ports['http']}", ssl=True, ssl_options=options, concurrency=2
    )
    assert client.is_server_ready()
    for size in (2, 1_000_000):  # the second is received straight into one buffer, and answered in parts
        values = np.arange(size, dtype=np.int32).reshape(1, size)
        tensor = httpclient.InferInput("IN", values.shape, "INT32")
        tensor.set_data_from_numpy(values)
        assert (client.infer("echo", [tensor]).as_numpy("OUT") == values).all()
    client.close()


def test_tritonclient_speaks_grpc_over_tls(server: RunningServer) -> None:
    root = str(certificate_of(server))
    client = grpcclient.InferenceServerClient(f"localhost:{server.ports['grpc']}", ssl=True, root_certificates=root)
    values = np.arange(1_000_000, dtype=np.int32).reshape(1, -1)
    tensor = grpcclient.InferInput("IN", values.shape, "INT32")
    tensor.set_data_from_numpy(values)
    assert (client.infer("echo", [tensor]).as_numpy("OUT") == values).all()
    client.close()


def test_openai_client_speaks_over_tls(server: RunningServer) -> None:
    context = ssl.create_default_context(cafile=str(certificate_of(server)))
    url = f"https://localhost:{server.ports['http']}/v1"
    with openai.OpenAI(base_url=url, api_key="none", http_client=openai.DefaultHttpxClient(verify=context)) as client:
        client.models.list()


def test_metrics_are_read_over_tls(server: RunningServer) -> None:
    assert b"nv_inference_request_success" in ask(server, "metrics", "/metrics", certificate_of(server))


def test_plain_http_is_not_answered_and_harms_nobody(server: RunningServer) -> None:
    for port in ("http", "metrics"):
        connection = http.client.HTTPConnection("127.0.0.1", server.ports[port], timeout=30)
        with pytest.raises((http.client.HTTPException, OSError)):
            connection.request("GET", "/v2/health/live")
            connection.getresponse()
        connection.close()
    ask(server, "http", "/v2/health/live", certificate_of(server))


@pytest.mark.parametrize("processes", [1, 2])
def test_failed_handshakes_hold_no_connection(folder: Path, processes: int) -> None:
    """Clients that speak no TLS, or leave in the midst of it, are not counted against --max-connections."""
    flags = [*tls_flags("http", "grpc"), "--max-connections=3", f"--frontend-processes={processes}"]
    with RunningServer(folder, *flags) as server:
        server.wait_until_listening()
        for port in ("http", "grpc"):
            for said in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"):
                for _ in range(3):
                    with socket.create_connection(("127.0.0.1", server.ports[port])) as client:
                        client.sendall(said)
        root = folder / "first.pem"
        server.until(lambda: is_listed(server, root))
        address = f"localhost:{server.ports['grpc']}"
        with grpcclient.InferenceServerClient(address, ssl=True, root_certificates=str(root)) as client:
            assert client.is_model_ready("echo")


def is_listed(server: RunningServer, root: Path) -> bool:
    """Whether the index is told, which connections beyond the limit do not get."""
    try:
        return b"echo" in ask(server, "http", "/v2/repository/index", root, b"")
    except AssertionError:
        return False


def test_a_changed_certificate_is_used_by_new_connections_and_old_ones_go_on(folder: Path) -> None:
    first, second = folder / "first.pem", folder / "second.pem"
    with RunningServer(folder, *tls_flags(*KINDS)) as server:
        server.wait_until_listening()
        context = ssl.create_default_context(cafile=str(first))
        kept = http.client.HTTPSConnection("127.0.0.1", server.ports["http"], timeout=30, context=context)
        kept.request("GET", "/v2/health/live")
        assert kept.getresponse().read() == b""
        install(folder, "second")
        for port in KINDS:
            server.until(lambda port=port: presented(server, port) == second.read_text())  # type: ignore[misc]
        ask(server, "http", "/v2/health/live", second)
        kept.request("POST", "/v2/models/echo/infer", json.dumps(int_request(7)))
        assert json.loads(kept.getresponse().read())["outputs"][0]["data"] == [7]
        kept.close()
        (folder / "server.pem").write_text("nonsense")
        server.until(lambda: server.log.count("certificates: the ") == 3)
        assert "what was read before still holds" in server.log
        ask(server, "http", "/v2/health/live", second)


def presented(server: RunningServer, port: str) -> str:
    return ssl.get_server_certificate(("127.0.0.1", server.ports[port]))


def test_clients_need_a_certificate_of_the_present_root(folder: Path) -> None:
    first, second = folder / "first.pem", folder / "second.pem"
    shutil.copy(first, folder / "root.pem")
    with RunningServer(folder, *tls_flags("http", "metrics", is_mutual=True)) as server:
        server.wait_until_listening()
        for port, path in (("http", "/v2/health/live"), ("metrics", "/metrics")):
            ask(server, port, path, first, client=first)
            for stranger in (None, second):
                with pytest.raises((ssl.SSLError, OSError)):
                    ask(server, port, path, first, client=stranger)
        shutil.copy(second, folder / "root.pem")
        server.until(lambda: is_let_in(server, second))
        assert not is_let_in(server, first)
        ask(server, "http", "/v2/health/live", first, client=second)


def is_let_in(server: RunningServer, client: Path) -> bool:
    try:
        ask(server, "http", "/v2/health/live", client.with_name("first.pem"), client=client)
    except (ssl.SSLError, OSError):
        return False
    return True


def test_wrong_files_are_told_before_anything_is_loaded(folder: Path) -> None:
    encrypted = folder / "encrypted.key"
    subprocess.run(
        ["openssl", "pkey", "-aes256", "-passout", "pass:x", "-in", "first.key", "-out", encrypted],
        cwd=folder,
        check=True,
    )
    problems = [
        (
            ("second.pem", "first.key"),
            "'second.pem' and 'first.key' cannot be used: the private key belongs to another",
        ),
        (("first.key", "first.key"), "cannot be used: there is no PEM block of that kind in it"),
        (("first.pem", "encrypted.key"), "the private key needs a passphrase"),
    ]
    for (certificate, key), problem in problems:
        flags: list[Any] = ["--http-use-ssl=true", f"--http-server-cert={certificate}", f"--http-server-key={key}"]
        with RunningServer(folder, *flags) as server:
            assert server.process.wait(30) == 1
            assert "error: creating server: Invalid argument - the HTTP certificate files" in server.log
            assert problem in server.log
            assert "loading: echo" not in server.log
