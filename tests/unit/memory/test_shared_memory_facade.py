"""The façade of client shared memory: names, kinds, bounds, and what happens while it is off."""

from __future__ import annotations

from multiprocessing.shared_memory import SharedMemory as ClientMemory

import pytest

from trireme.core.errors import ErrorKind, ServingError
from trireme.core.request import InferenceRequest
from trireme.core.tensor import Tensor
from trireme.server.shared_memory import DISABLED, SharedMemory


@pytest.fixture
def memory(client_memory: ClientMemory) -> SharedMemory:
    memory = SharedMemory(is_allowed=True)
    memory.register_system("r", client_memory.name, 64, 1024)
    return memory


def refusal(call, *arguments) -> tuple[ErrorKind, str]:
    with pytest.raises(ServingError) as caught:
        call(*arguments)
    return caught.value.kind, caught.value.message


def test_while_it_is_off_nothing_is_registered_and_nothing_found() -> None:
    memory = SharedMemory()
    assert refusal(memory.register_system, "r", "/k", 0, 8) == (ErrorKind.UNSUPPORTED, DISABLED)
    assert refusal(memory.register_cuda, "r", bytes(64), 0, 8) == (ErrorKind.UNSUPPORTED, DISABLED)
    assert refusal(memory.unregister, "system", "r") == (ErrorKind.UNSUPPORTED, DISABLED)
    assert memory.system_regions("") == []
    assert memory.cuda_regions("") == []
    assert refusal(memory.read, "r", 0, 8) == (ErrorKind.NOT_FOUND, "Unable to find shared memory region: 'r'")


def test_a_name_is_taken_once(memory: SharedMemory, client_memory: ClientMemory) -> None:
    taken = (ErrorKind.ALREADY_EXISTS, "shared memory region 'r' already in manager")
    assert refusal(memory.register_system, "r", client_memory.name, 0, 8) == taken
    assert refusal(memory.register_cuda, "r", bytes(64), 0, 8) == taken
    memory.register_system("", client_memory.name, 0, 8)  # which only gRPC can do
    nameless = (ErrorKind.ALREADY_EXISTS, "shared memory region '' already in manager")
    assert refusal(memory.register_system, "", client_memory.name, 0, 8) == nameless


def test_regions_are_listed_by_name(memory: SharedMemory, client_memory: ClientMemory) -> None:
    memory.register_system("a", client_memory.name, 0, 8)
    assert [(region.name, region.offset, region.byte_size) for region in memory.system_regions("")] == [
        ("a", 0, 8),
        ("r", 64, 1024),
    ]
    assert [region.key for region in memory.system_regions("r")] == [client_memory.name]
    assert memory.cuda_regions("") == []


def test_a_region_of_the_other_kind_is_not_found(memory: SharedMemory) -> None:
    text = "The region named 'r' is registered as system shared memory, not CUDA shared memory"
    assert refusal(memory.cuda_regions, "r") == (ErrorKind.NOT_FOUND, text)
    missing = (ErrorKind.NOT_FOUND, "Unable to find cuda shared memory region: 'x'")
    assert refusal(memory.cuda_regions, "x") == missing


def test_unregistering_forgets_one_or_all_of_a_kind(memory: SharedMemory, client_memory: ClientMemory) -> None:
    memory.register_system("a", client_memory.name, 0, 8)
    memory.unregister("system", "nosuch")
    memory.unregister("cuda", "")
    memory.unregister("cuda", "a")
    memory.unregister("system", "a")
    assert [region.name for region in memory.system_regions("")] == ["r"]
    memory.unregister("system", "")
    assert memory.system_regions("") == []


@pytest.mark.parametrize(
    ("offset", "size_bytes", "text"),
    [
        (1024, 0, "Invalid offset for"),
        (2**64 - 1, 8, "Invalid offset for"),
        (-1, 8, "Invalid offset for"),
        (1023, 2, "Invalid offset + byte size for"),
        (1, 2**64 - 1, "Invalid offset + byte size for"),
        (0, -1, "Invalid offset + byte size for"),
    ],
)
def test_tensors_stay_within_their_region(memory: SharedMemory, offset, size_bytes, text) -> None:
    expected = (ErrorKind.INVALID_ARGUMENT, f"{text} shared memory region: 'r'")
    assert refusal(memory.read, "r", offset, size_bytes) == expected
    assert refusal(memory.target, "r", offset, size_bytes) == expected


def test_inputs_are_read_from_the_regions_own_offset_on(memory: SharedMemory, client_memory: ClientMemory) -> None:
    client_memory.buf[64 + 8 : 64 + 12] = b"here"
    assert bytes(memory.read("r", 8, 4)) == b"here"


def test_outputs_are_put_into_the_region_and_leave_the_answer(
    memory: SharedMemory, client_memory: ClientMemory
) -> None:
    target = memory.target("r", 16, 8)
    memory.unregister("system", "r")  # a request under way is not disturbed
    written = target.write(Tensor("A", "INT8", [4], b"here"))
    assert bytes(client_memory.buf[64 + 16 : 64 + 24]) == b"here\0\0\0\0"
    assert (written.name, written.shape, written.data) == ("A", [4], b"")


def test_an_output_larger_than_its_room_is_refused_and_not_written(
    memory: SharedMemory, client_memory: ClientMemory
) -> None:
    text = (
        "shared memory size specified with the request for output 'A' (4 bytes) should be at least 5 bytes to hold "
        "the results"
    )
    target = memory.target("r", 0, 4)
    assert refusal(target.write, Tensor("A", "INT8", [5], b"12345")) == (ErrorKind.INTERNAL, text)
    assert bytes(client_memory.buf[64:70]) == bytes(6)


@pytest.mark.parametrize("copies_inputs", [False, True])
def test_with_a_response_cache_an_input_stays_what_it_was(client_memory: ClientMemory, copies_inputs: bool) -> None:
    memory = SharedMemory(is_allowed=True, copies_inputs=copies_inputs)
    size_bytes = client_memory.size
    memory.register_system("r", client_memory.name, 0, size_bytes)
    found = memory.read("r", 0, size_bytes)
    client_memory.buf[:5] = b"later"
    assert bytes(found[:5]) == (bytes(5) if copies_inputs else b"later")


def test_regions_of_a_request_are_those_that_its_inputs_lie_in(
    memory: SharedMemory, client_memory: ClientMemory
) -> None:
    memory.register_system("large", client_memory.name, 0, 8192)
    inputs = {name: Tensor(name, "UINT8", [8000], memory.read("large", 0, 8000)) for name in ("A", "B")}
    request = InferenceRequest("m", "", "", inputs, lambda response: None)
    assert memory.regions_of(request) == memory.system_regions("large")
    memory.unregister("system", "large")
    assert memory.regions_of(request) == []


def test_a_request_without_regions_has_none(memory: SharedMemory) -> None:
    sent = Tensor("IN", "UINT8", [4], memoryview(b"sent"))
    copied = Tensor("COPIED", "UINT8", [8], memory.read("r", 0, 8))
    request = InferenceRequest("m", "", "", {"IN": sent, "COPIED": copied}, lambda response: None)
    assert memory.regions_of(request) == []
