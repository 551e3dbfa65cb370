"""Looks at hubs that answer, refuse, keep silent, come back, or are behind a proxy."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from meanwhile import serving
from small_hub import Hub, closed_port

from trireme.backends.python.compat.huggingface import hub_reach
from trireme.backends.python.compat.huggingface.hub_reach import why_out_of_reach

NO_PROXY: dict[str, str] = {}


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_reach, "_findings", {})
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving(Hub()) as hub:
        yield hub


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def test_any_answer_will_do_and_is_remembered(hub: Hub) -> None:
    for _ in range(2):
        assert why_out_of_reach(hub.url, 5) is None
    assert hub.asked == ["HEAD /"]


def test_a_path_of_a_mirror_is_asked_for_as_it_is(hub: Hub) -> None:
    assert why_out_of_reach(f"{hub.url}/api/huggingface/mine", 5) is None
    assert hub.asked == ["HEAD /api/huggingface/mine"]


def test_who_speaks_something_else_than_expected_is_there(hub: Hub) -> None:
    assert why_out_of_reach(hub.url.replace("http:", "https:"), 5) is None


def test_a_certificate_that_nobody_vouches_for_is_an_answer_and_gets_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate")
    command = f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command.split(), *names], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    hub = Hub()
    hub.socket = context.wrap_socket(hub.socket, server_side=True)
    monkeypatch.setattr(hub, "handle_error", lambda *_: None)  # a client that goes away is what is expected
    with serving(hub):
        url = hub.url.replace("http:", "https:")
        assert why_out_of_reach(url, 5) is None
        assert hub.asked == []
        monkeypatch.setattr(hub_reach, "_findings", {})
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        assert why_out_of_reach(url, 5) is None
        assert hub.asked == ["HEAD /"]


def test_who_hangs_up_without_a_word_is_no_hub() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            connection, _ = listener.accept()
            connection.recv(4096)
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        reason = why_out_of_reach(f"http://127.0.0.1:{listener.getsockname()[1]}", 5)
        thread.join()
    assert reason is not None
    assert reason.startswith("RemoteDisconnected")


def test_a_hub_that_comes_back_is_seen_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    port = closed_port()
    endpoint = f"http://127.0.0.1:{port}"
    reason = why_out_of_reach(endpoint, 5)
    assert reason is not None
    assert "ConnectionRefusedError" in reason
    with serving(Hub(port=port)) as hub:
        assert why_out_of_reach(endpoint, 5) == reason
        assert hub.asked == []
        monkeypatch.setattr(hub_reach, "AGAIN_S", 0)
        assert why_out_of_reach(endpoint, 5) is None


def test_who_is_patient_waits_for_a_network_that_comes_up() -> None:
    port = closed_port()
    endpoint = f"http://127.0.0.1:{port}"
    assert why_out_of_reach(endpoint, 5) is not None  # which was one look of somebody in a hurry
    ready = threading.Event()

    def come_up() -> None:
        time.sleep(0.5)
        with serving(Hub(port=port)):
            ready.wait(10)

    thread = threading.Thread(target=come_up)
    thread.start()
    try:
        assert why_out_of_reach(endpoint, 5, is_patient=True) is None
    finally:
        ready.set()
        thread.join()


def test_patience_has_an_end() -> None:
    seconds: list[float] = []
    while not seconds or (seconds[-1] >= 2 and len(seconds) < 5):  # a busy machine may try again
        began = time.monotonic()
        assert why_out_of_reach(f"http://127.0.0.1:{closed_port()}", 1.2, is_patient=True) is not None
        seconds.append(time.monotonic() - began)
    assert 0.9 < min(seconds) < 2


def test_silence_takes_no_longer_than_the_limit(silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_reach, "AGAIN_S", 0)
    seconds: list[float] = []
    while not seconds or (seconds[-1] >= 2 and len(seconds) < 5):  # a busy machine may try again
        began = time.monotonic()
        reason = why_out_of_reach(f"http://127.0.0.1:{silent}", 0.3)
        seconds.append(time.monotonic() - began)
        assert reason == "no answer within 0.3 s, which HF_HUB_ETAG_TIMEOUT changes"
    assert min(seconds) < 2


def test_with_a_proxy_the_proxy_is_looked_at(monkeypatch: pytest.MonkeyPatch, silent: int) -> None:
    endpoint = "https://hub.invalid"
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{silent}")
    assert why_out_of_reach(endpoint, 5) is None
    monkeypatch.setenv("HTTPS_PROXY", f"127.0.0.1:{closed_port()}")
    reason = why_out_of_reach(endpoint, 5)
    assert reason is not None
    assert reason.startswith("the proxy '127.0.0.1': ConnectionRefusedError")


def test_a_proxy_of_another_kind_and_one_that_the_model_gives_count_too(silent: int) -> None:
    proxy = f"socks5://127.0.0.1:{silent}"
    assert why_out_of_reach("https://hub.invalid", 5, {"all": proxy}) is None
    assert why_out_of_reach("https://other.invalid", 5, {"https://other.invalid": proxy}) is None
    assert why_out_of_reach("https://hub.invalid", 5, NO_PROXY) is not None


def test_a_hub_beside_the_proxy_is_looked_at_itself(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("REQUEST_METHOD", raising=False)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port()}")
    assert why_out_of_reach(hub.url, 5) is None
