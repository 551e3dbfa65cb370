"""Client shared memory with the official clients: a server that allows it, over HTTP, gRPC and gRPC streams."""

from __future__ import annotations

import base64
import json
import queue
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils.shared_memory as shm
from running_server import RunningServer, write_model
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

MODEL = """
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]

    def execute(self, requests):
        return [getattr(self, self.name)(request) for request in requests]

    def pair(self, request):
        a, b = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("A", "B"))
        if a[0] == 777:
            time.sleep(0.5)
        return pb_utils.InferenceResponse([pb_utils.Tensor("SUM", a + b), pb_utils.Tensor("DIFF", a - b)])

    def shout(self, request):
        words = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        loud = np.array([word.upper() for word in words.reshape(-1)], dtype=object)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", loud)])

    def steps(self, request):
        sender = request.get_response_sender()
        start = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        for step in range(3):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", start + step)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def config(inputs: list[str], outputs: list[str], datatype: str, extra: str = "") -> str:
    sides = {"input": inputs, "output": outputs}
    entries = [
        f'{side} {{ name: "{name}" data_type: {datatype} dims: [ -1 ] }}'
        for side, names in sides.items()
        for name in names
    ]
    return "\n".join(['backend: "python"', "instance_group { kind: KIND_CPU }", *entries, extra])


CONFIGS = {
    "pair": config(["A", "B"], ["SUM", "DIFF"], "TYPE_FP32"),
    "shout": config(["IN"], ["OUT"], "TYPE_STRING"),
    "steps": config(["IN"], ["OUT"], "TYPE_INT32", "model_transaction_policy { decoupled: true }"),
}
FLOATS = 4096  # 16 KiB: more than is copied out of a region at once
A = np.arange(FLOATS, dtype=np.float32)
B = np.full(FLOATS, 0.5, dtype=np.float32)
SIZE = A.nbytes


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of the installed package that was told to allow client shared memory."""
    folder = tmp_path_factory.mktemp("sharing")
    for name, text in CONFIGS.items():
        write_model(folder, name, MODEL, text)
    with RunningServer(folder, "--allow-client-shm=true") as server:
        server.wait_until_listening()
        yield server


class SharingClient:
    """A client of one protocol, and regions that are gone when the test is over."""

    def __init__(self, name: str, server: RunningServer) -> None:
        self.name = name
        self.server = server
        self.module = tritonclient.http if name == "http" else tritonclient.grpc
        self.client = self.module.InferenceServerClient(f"127.0.0.1:{server.ports[name]}")
        self.handles: list[Any] = []

    def region(self, name: str, byte_size: int, offset: int = 0) -> Any:
        """A region of this size, registered from the offset on."""
        key = f"/trireme-test-{uuid.uuid4().hex}"
        handle = shm.create_shared_memory_region(name, key, offset + byte_size, create_only=True)
        self.handles.append(handle)
        self.client.register_system_shared_memory(name, key, byte_size, offset)
        return handle

    def shared_input(self, name: str, count: int, region: str, offset: int = 0, datatype: str = "FP32") -> Any:
        entry = self.module.InferInput(name, [count], datatype)
        entry.set_shared_memory(region, count * 4, offset)
        return entry

    def pair(self, region: str, count: int = FLOATS) -> list[Any]:
        """The inputs of `pair`, one behind the other in a region."""
        return [self.shared_input("A", count, region), self.shared_input("B", count, region, count * 4)]

    def shared_output(self, name: str, region: str, byte_size: int, offset: int = 0) -> Any:
        entry = self.module.InferRequestedOutput(name)
        entry.set_shared_memory(region, byte_size, offset)
        return entry

    def regions(self, name: str = "") -> dict[str, dict[str, Any]]:
        """What the server lists, by name."""
        if self.name == "http":
            return {entry["name"]: entry for entry in self.client.get_system_shared_memory_status(name)}
        found = self.client.get_system_shared_memory_status(name, as_json=True)
        return dict(found.get("regions", {}))

    def close(self) -> None:
        self.client.unregister_system_shared_memory()
        for handle in self.handles:
            shm.destroy_shared_memory_region(handle)
        self.client.close()


@pytest.fixture(params=["http", "grpc"])
def sharer(request: pytest.FixtureRequest, sharing: RunningServer) -> Iterator[SharingClient]:
    client = SharingClient(request.param, sharing)
    yield client
    client.close()


def test_inputs_and_outputs_are_in_shared_memory(sharer: SharingClient) -> None:
    given = sharer.region("in", 2 * SIZE)
    taken = sharer.region("out", 2 * SIZE)
    shm.set_shared_memory_region(given, [A, B])
    for run in range(3):
        outputs = [sharer.shared_output("SUM", "out", SIZE), sharer.shared_output("DIFF", "out", SIZE, SIZE)]
        result = sharer.client.infer("pair", sharer.pair("in"), outputs=outputs, request_id=str(run))
        described = result.get_output("SUM")
        assert list(described["shape"] if sharer.name == "http" else described.shape) == [FLOATS]
        assert (shm.get_contents_as_numpy(taken, np.float32, [FLOATS]) == A + B + run).all()
        assert (shm.get_contents_as_numpy(taken, np.float32, [FLOATS], SIZE) == A - B + run).all()
        shm.set_shared_memory_region(given, [A + run + 1, B])


def test_shared_and_sent_tensors_go_together(sharer: SharingClient) -> None:
    given = sharer.region("in", SIZE)
    taken = sharer.region("out", SIZE)
    shm.set_shared_memory_region(given, [B])
    sent = sharer.module.InferInput("A", [FLOATS], "FP32")
    sent.set_data_from_numpy(A)
    inputs = [sharer.shared_input("B", FLOATS, "in"), sent]
    outputs = [sharer.shared_output("SUM", "out", SIZE), sharer.module.InferRequestedOutput("DIFF")]
    result = sharer.client.infer("pair", inputs, outputs=outputs)
    assert (result.as_numpy("DIFF") == A - B).all()
    assert (shm.get_contents_as_numpy(taken, np.float32, [FLOATS]) == A + B).all()
    result = sharer.client.infer("pair", list(reversed(inputs)))
    assert (result.as_numpy("SUM") == A + B).all()


def test_strings_are_in_shared_memory(sharer: SharingClient) -> None:
    words = np.array([b"one", b"", b"three" * 100], dtype=object)
    packed = serialize_byte_tensor(words)
    size = len(packed.item())
    given, taken = sharer.region("in", size), sharer.region("out", size + 100)
    shm.set_shared_memory_region(given, [packed])
    entry = sharer.module.InferInput("IN", [3], "BYTES")
    entry.set_shared_memory("in", size)
    sharer.client.infer("shout", [entry], outputs=[sharer.shared_output("OUT", "out", size + 100)])
    assert shm.get_contents_as_numpy(taken, np.object_, [3]).tolist() == [b"ONE", b"", b"THREE" * 100]
    entry.set_shared_memory("in", size - 1)
    with pytest.raises(InferenceServerException, match="string"):
        sharer.client.infer("shout", [entry])


def test_regions_begin_anywhere(sharer: SharingClient) -> None:
    given = sharer.region("in", 8, offset=4100)
    shm.set_shared_memory_region(given, [np.array([1, 2], dtype=np.float32)], 4100)
    inputs = [sharer.shared_input("A", 1, "in"), sharer.shared_input("B", 1, "in", 4)]
    assert sharer.client.infer("pair", inputs).as_numpy("SUM").tolist() == [3]
    assert int(sharer.regions("in")["in"]["offset"]) == 4100


def test_regions_are_listed_and_forgotten(sharer: SharingClient) -> None:
    assert sharer.regions() == {}
    first = sharer.region("first", 64)
    sharer.region("second", 128)
    found = sharer.regions()
    assert sorted(found) == ["first", "second"]
    assert (found["first"]["key"], int(found["first"]["byte_size"])) == (first._shm_key, 64)
    assert list(sharer.regions("second")) == ["second"]
    assert not sharer.client.get_cuda_shared_memory_status() or sharer.name == "grpc"
    sharer.client.unregister_system_shared_memory("first")
    sharer.client.unregister_system_shared_memory("first")
    assert list(sharer.regions()) == ["second"]
    with pytest.raises(InferenceServerException, match="Unable to find system shared memory region: 'first'"):
        sharer.regions("first")
    sharer.client.unregister_system_shared_memory()
    assert sharer.regions() == {}


def test_what_cannot_be_registered_is_told(sharer: SharingClient) -> None:
    handle = sharer.region("taken", 64)
    register = sharer.client.register_system_shared_memory
    with pytest.raises(InferenceServerException, match="shared memory region 'taken' already in manager"):
        register("taken", handle._shm_key, 64)
    with pytest.raises(InferenceServerException, match="Unable to open shared memory region: '/nosuch'"):
        register("r", "/nosuch", 64)
    with pytest.raises(InferenceServerException, match="failed to register shared memory region 'r': invalid args"):
        register("r", handle._shm_key, 64, offset=4096)
    with pytest.raises(InferenceServerException, match=r"Unable to open shared memory region: '/\.\./etc/passwd'"):
        register("r", "/../etc/passwd", 64)
    with pytest.raises(InferenceServerException, match=r"GPUs not supported|failed to open CUDA IPC handle"):
        sharer.client.register_cuda_shared_memory("r", base64.b64encode(bytes(64)), 0, 64)
    is_grpc = isinstance(sharer.client, tritonclient.grpc.InferenceServerClient)
    text = "failed to register shared memory region: invalid args" if is_grpc else "'raw_handle' must be a"
    for handle_bytes in (b"", bytes(63)):
        with pytest.raises(InferenceServerException, match=text):
            sharer.client.register_cuda_shared_memory("r", base64.b64encode(handle_bytes), 0, 64)
    if is_grpc:
        with pytest.raises(InferenceServerException, match="Unable to open shared memory region: '/nosuch'"):
            register("", "/nosuch", 64)
    assert list(sharer.regions()) == ["taken"]


def test_wrong_use_in_a_request_is_told(sharer: SharingClient) -> None:
    sharer.region("r", 64)
    infer, shared = sharer.client.infer, sharer.shared_input
    good = shared("B", 2, "r", 8)
    for entry, text in (
        (shared("A", 2, "nosuch"), "Unable to find shared memory region: 'nosuch'"),
        (shared("A", 2, "r", 64), "Invalid offset for shared memory region: 'r'"),
        (shared("A", 2, "r", 60), "Invalid offset [+] byte size for shared memory region: 'r'"),
        (shared("A", 2**40, "r"), "Invalid offset [+] byte size for shared memory region: 'r'"),
    ):
        with pytest.raises(InferenceServerException, match=text):
            infer("pair", [entry, good])
    inputs = [shared("A", 2, "r"), good]
    entry = sharer.module.InferInput("A", [2], "FP32")
    entry.set_shared_memory("r", 12)
    with pytest.raises(InferenceServerException, match="input byte size mismatch for input 'A' for model 'pair'"):
        infer("pair", [entry, good])
    for output, text in (
        (sharer.shared_output("SUM", "nosuch", 8), "Unable to find shared memory region: 'nosuch'"),
        (sharer.shared_output("SUM", "r", 8, 60), "Invalid offset [+] byte size for shared memory region: 'r'"),
        (
            sharer.shared_output("SUM", "r", 7),
            r"shared memory size specified with the request for output 'SUM' \(7 bytes\) should be at least 8 bytes",
        ),
    ):
        with pytest.raises(InferenceServerException, match=text):
            infer("pair", inputs, outputs=[output])
    assert infer("pair", inputs).as_numpy("SUM").tolist() == [0, 0]


def test_a_request_under_way_keeps_the_region_that_is_unregistered(sharer: SharingClient) -> None:
    given, taken = sharer.region("in", 2 * SIZE), sharer.region("out", SIZE)
    slow = A.copy()
    slow[0] = 777
    shm.set_shared_memory_region(given, [slow, B])
    failures: list[BaseException] = []

    def run() -> None:
        client = SharingClient(sharer.name, sharer.server)
        try:
            client.client.infer("pair", client.pair("in"), outputs=[client.shared_output("SUM", "out", SIZE)])
        except BaseException as error:
            failures.append(error)
        finally:
            client.client.close()

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.2)
    sharer.client.unregister_system_shared_memory()
    assert sharer.regions() == {}
    sharer.client.register_system_shared_memory("out", given._shm_key, SIZE)  # the name is free, the memory another
    thread.join(20)
    assert failures == []
    assert (shm.get_contents_as_numpy(taken, np.float32, [FLOATS]) == slow + B).all()


def test_a_region_that_the_client_cuts_off_does_not_end_the_server(sharer: SharingClient) -> None:
    given = sharer.region("in", 2 * SIZE)
    Path("/dev/shm", given._shm_key.lstrip("/")).write_bytes(b"")
    with pytest.raises(InferenceServerException, match="is or was smaller than when it was registered"):
        sharer.client.infer("pair", sharer.pair("in"))
    assert sharer.client.is_server_live()


@pytest.mark.parametrize("sharer", ["grpc"], indirect=True)
def test_a_stream_reads_and_writes_shared_memory(sharer: SharingClient) -> None:
    given, taken = sharer.region("in", 2 * SIZE), sharer.region("out", SIZE)
    shm.set_shared_memory_region(given, [A, B])
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client = sharer.client
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer("pair", sharer.pair("in"), outputs=[sharer.shared_output("SUM", "out", SIZE)])
    result, error = answers.get(timeout=20)
    assert error is None
    assert list(result.get_response().outputs[0].shape) == [FLOATS]
    assert list(result.get_response().raw_output_contents) == [b""]
    assert (shm.get_contents_as_numpy(taken, np.float32, [FLOATS]) == A + B).all()
    client.async_stream_infer("pair", sharer.pair("in"), outputs=[sharer.shared_output("SUM", "out", 8)])
    assert "(8 bytes) should be at least 16384 bytes" in str(answers.get(timeout=20)[1])
    client.async_stream_infer("pair", sharer.pair("nosuch"))
    assert "Unable to find shared memory region: 'nosuch'" in str(answers.get(timeout=20)[1])
    shm.set_shared_memory_region(given, [np.array([5], dtype=np.int32)])
    start = [sharer.shared_input("IN", 1, "in", datatype="INT32")]
    client.async_stream_infer("steps", start, outputs=[sharer.shared_output("OUT", "out", 4)])
    for _ in range(3):
        assert answers.get(timeout=20)[1] is None
    client.stop_stream()
    assert answers.empty()
    assert shm.get_contents_as_numpy(taken, np.int32, [1]).tolist() == [7]


@pytest.mark.parametrize("sharer", ["http"], indirect=True)
def test_the_answer_describes_an_output_that_is_not_in_it(sharer: SharingClient) -> None:
    sharer.region("r", 64)
    place = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    tensor = {"shape": [2], "datatype": "FP32", "parameters": place}
    inputs = [{"name": name, **tensor} for name in ("A", "B")]
    shared = {"name": "SUM", "parameters": {**place, "shared_memory_offset": 16}}
    sent = {"name": "DIFF", "parameters": {"binary_data": True}}
    ask = sharer.server.ask
    status, headers, body = ask("POST", "/v2/models/pair/infer", {"inputs": inputs, "outputs": [shared]})
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body)["outputs"] == [{"name": "SUM", "datatype": "FP32", "shape": [2]}]
    status, headers, body = ask("POST", "/v2/models/pair/infer", {"inputs": inputs, "outputs": [shared, sent]})
    text = body[: int(headers["Inference-Header-Content-Length"])]
    assert body[len(text) :] == bytes(8)
    assert [list(entry) for entry in json.loads(text)["outputs"]] == [
        ["name", "datatype", "shape"],
        ["name", "datatype", "shape", "parameters"],
    ]
