"""Keys at a real server: `trireme keys` makes them, the official clients send them, a changed file holds at once."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from running_server import RunningServer, exchange, int_request, write_model
from tritonclient.utils import InferenceServerException
from waiting import until

ECHO = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        given = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)]) for array in given]
"""
COMMAND = str(Path(sys.executable).with_name("trireme"))


def keys(*words: object) -> str:
    """Runs `trireme keys`; what it prints, a key."""
    done = subprocess.run([COMMAND, "keys", *map(str, words)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Keyed:
    """A server with keys, and the keys."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "keys.toml"
        self.client = keys("new", self.file, "client")
        self.ops = keys("new", self.file, "ops", "--groups", "model-repository,metrics,logging,trace")
        self.slow = keys("new", self.file, "slow", "--requests-per-second", "0.05")
        write_model(folder, "echo", ECHO)
        flags = (
            "--api-keys=keys.toml",
            "--api-key-header=X-Api-Key",
            "--model-control-mode=explicit",
            "--load-model=*",
        )
        self.server = RunningServer(folder, *flags)

    def http(self, method: str, path: str, secret: str | None, body: object = None, port: str = "http") -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.ports[port], timeout=30)
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        original = connection.request
        connection.request = lambda *given: original(*given[:3], {**given[3], **headers})  # type: ignore[method-assign]
        try:
            return exchange(connection, method, path, body)
        finally:
            connection.close()

    def status(self, path: str, secret: str | None, method: str = "GET", body: object = None) -> int:
        return int(self.http(method, path, secret, body)[0])


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    made = Keyed(tmp_path_factory.mktemp("keyed"))
    with made.server as server:
        server.wait_until_listening()
        yield made


def inputs(client: Any) -> list[Any]:
    tensor = client.InferInput("IN", [1, 2], "INT32")
    tensor.set_data_from_numpy(np.array([[1, 2]], np.int32))
    return [tensor]


def test_tritonclient_sends_a_key_over_http(keyed: Keyed) -> None:
    client = httpclient.InferenceServerClient(f"127.0.0.1:{keyed.server.ports['http']}")
    for headers in ({"Authorization": f"Bearer {keyed.client}"}, {"X-Api-Key": keyed.client}):
        result = client.infer("echo", inputs(httpclient), headers=headers)
        assert result.as_numpy("OUT").tolist() == [[1, 2]]
        assert client.is_model_ready("echo", headers=headers)
    with pytest.raises(InferenceServerException, match="a valid API key is needed"):
        client.infer("echo", inputs(httpclient))
    with pytest.raises(InferenceServerException, match="the key 'client' is not allowed to use 'model-repository'"):
        client.unload_model("echo", headers=headers)
    client.close()


def test_tritonclient_sends_a_key_over_grpc(keyed: Keyed) -> None:
    client = grpcclient.InferenceServerClient(f"127.0.0.1:{keyed.server.ports['grpc']}")
    for headers in ({"authorization": f"Bearer {keyed.client}"}, {"x-api-key": keyed.client}):
        result = client.infer("echo", inputs(grpcclient), headers=headers)
        assert result.as_numpy("OUT").tolist() == [[1, 2]]
    with pytest.raises(InferenceServerException, match="a valid API key is needed") as caught:
        client.infer("echo", inputs(grpcclient))
    assert caught.value.status() == "StatusCode.UNAUTHENTICATED"
    with pytest.raises(InferenceServerException, match="'client' is not allowed to use 'model-repository'") as caught:
        client.get_model_repository_index(headers=headers)
    assert caught.value.status() == "StatusCode.PERMISSION_DENIED"
    client.close()


def test_a_stream_over_grpc_needs_a_key_and_counts_its_requests(keyed: Keyed) -> None:
    client = grpcclient.InferenceServerClient(f"127.0.0.1:{keyed.server.ports['grpc']}")
    results: list[Any] = []
    client.start_stream(lambda result, error: results.append(error or result), headers=bearer(keyed.client))
    for number in range(3):
        client.async_stream_infer("echo", inputs(grpcclient), request_id=str(number))
    until(lambda: len(results) == 3)
    assert [result.as_numpy("OUT").tolist() for result in results] == [[[1, 2]]] * 3
    client.stop_stream()
    results.clear()
    client.start_stream(lambda result, error: results.append(error or result))  # ends by itself
    until(lambda: results)
    assert "a valid API key is needed" in str(results[0])
    client.stop_stream(cancel_requests=True)
    client.close()


def test_openai_client_sends_its_key_and_understands_the_refusals(keyed: Keyed) -> None:
    url = f"http://127.0.0.1:{keyed.server.ports['http']}/v1"
    with openai.OpenAI(base_url=url, api_key=keyed.client, max_retries=0) as client:
        client.models.list()
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "?"}])
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError, match="a valid API key is needed") as caught:
            client.models.list()
        assert caught.value.code == "invalid_api_key"
    client = openai.OpenAI(base_url=url, api_key=keyed.ops, max_retries=0)
    with client, pytest.raises(openai.PermissionDeniedError, match="not allowed to use 'inference'"):
        client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "?"}])


def test_a_quota_is_refused_with_the_time_to_wait_and_counted(keyed: Keyed) -> None:
    assert keyed.status("/v2/models/echo/infer", keyed.slow, "POST", int_request(1)) == 200
    status, headers, body = keyed.http("POST", "/v2/models/echo/infer", keyed.slow, int_request(1))
    assert status == 429
    assert 1 <= int(headers["Retry-After"]) <= 20
    assert b"requests_per_second is 0.05" in body
    client = grpcclient.InferenceServerClient(f"127.0.0.1:{keyed.server.ports['grpc']}")
    with pytest.raises(InferenceServerException, match="requests_per_second is") as caught:
        client.infer("echo", inputs(grpcclient), headers=bearer(keyed.slow))
    assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
    client.close()
    url = f"http://127.0.0.1:{keyed.server.ports['http']}/v1"
    impatient = openai.OpenAI(base_url=url, api_key=keyed.slow, max_retries=0)
    with impatient, pytest.raises(openai.RateLimitError, match="requests_per_second") as limited:
        impatient.models.list()
    assert limited.value.response.headers["retry-after"]
    page = keyed.http("GET", "/metrics", keyed.ops, port="metrics")[2].decode()
    assert 'trireme_key_requests_total{key="slow"} 1\n' in page
    assert 'trireme_key_refusals_total{key="slow",reason="requests_per_second"} 3\n' in page


def test_a_readiness_poll_uses_nothing_of_the_quota_and_passes_where_all_is_used_up(keyed: Keyed) -> None:
    polled = keys("new", keyed.file, "polled", "--requests-per-second", "0.05", "--bytes-per-second", "100")
    until(lambda: keyed.status("/v2/health/ready", polled) == 200)
    client = grpcclient.InferenceServerClient(f"127.0.0.1:{keyed.server.ports['grpc']}")
    for _ in range(5):
        assert keyed.status("/v2/models/echo/ready", polled) == 200
        assert client.is_server_ready(headers=bearer(polled))
    assert keyed.status("/v2/models/echo/infer", polled, "POST", int_request(1)) == 200
    assert keyed.status("/v2/models/echo/infer", polled, "POST", int_request(1)) == 429
    assert keyed.status("/v2/health/live", polled) == 200
    assert client.is_model_ready("echo", headers=bearer(polled))
    client.close()


def test_the_metrics_port_asks_for_a_key(keyed: Keyed) -> None:
    assert keyed.http("GET", "/metrics", None, port="metrics")[0] == 401
    assert keyed.http("GET", "/metrics", keyed.client, port="metrics")[0] == 403
    assert keyed.http("GET", "/metrics", keyed.ops, port="metrics")[0] == 200


def test_a_changed_file_holds_without_a_restart_and_a_broken_one_changes_nothing(keyed: Keyed) -> None:
    path = "/v2/models/echo/ready"
    late = keys("new", keyed.file, "late")
    until(lambda: keyed.status(path, late) == 200)
    newer = keys("rotate", keyed.file, "late")
    until(lambda: keyed.status(path, newer) == 200)
    assert keyed.status(path, late) == 200
    text = keyed.file.read_text()
    keyed.file.write_text(text.replace('"inference"', '"infer"'))
    keyed.server.until(lambda: "there is no group 'infer'" in keyed.server.log)
    assert keyed.status(path, late) == 200
    keyed.file.write_text(text)
    keys("remove", keyed.file, "late")
    until(lambda: keyed.status(path, late) == 401)
    assert keyed.status(path, keyed.client) == 200
    assert "what was read before still holds" in keyed.server.log


def test_a_bad_key_file_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    write_model(tmp_path, "echo", ECHO)
    (tmp_path / "keys.toml").write_text("")
    for mode, problem in ((0o644, "everybody on this machine can read it (mode 0644); run: chmod 600"), (0o600, "")):
        (tmp_path / "keys.toml").chmod(mode)
        name = "keys.toml" if problem else "missing.toml"
        with RunningServer(tmp_path, f"--api-keys={name}") as server:
            assert server.process.wait(30) == 1
            assert "error: creating server: Invalid argument - the key file" in server.log
            assert (problem or "No such file or directory; 'trireme keys new' makes one") in server.log
            assert "loading: echo" not in server.log


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def test_the_secrets_are_nowhere_in_the_file_or_the_log(keyed: Keyed) -> None:
    kept = keyed.file.read_text() + keyed.server.log
    assert not any(secret in kept for secret in (keyed.client, keyed.ops, keyed.slow))
    assert os.stat(keyed.file).st_mode & 0o077 == 0
