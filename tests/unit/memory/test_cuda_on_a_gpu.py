"""CUDA regions on a real GPU, with a client in a process of its own; without one there is nothing to test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from trireme.core.errors import ServingError
from trireme.memory.cuda import HANDLE_BYTES, CudaRegion, load_runtime

SIZE = 1 << 20
CLIENT = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
size = int(sys.argv[2])
address = ctypes.c_void_p()
assert library.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size)) == 0
assert library.cudaMemset(address, 7, ctypes.c_size_t(size)) == 0
handle = ctypes.create_string_buffer(64)
assert library.cudaIpcGetMemHandle(handle, address) == 0
print(handle.raw.hex(), flush=True)
sys.stdin.readline()
found = ctypes.create_string_buffer(16)
assert library.cudaMemcpy(found, address, ctypes.c_size_t(16), 2) == 0
print(found.raw.hex(), flush=True)
"""


@pytest.fixture
def client() -> Iterator[subprocess.Popen[str]]:
    runtime = load_runtime()
    if runtime is None:
        pytest.skip("there is no GPU, or no CUDA runtime")
    command = [sys.executable, "-c", CLIENT, runtime.path, str(SIZE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()  # type: ignore[union-attr]


def test_server_and_client_see_each_others_bytes(client) -> None:
    handle = bytes.fromhex(client.stdout.readline())
    assert len(handle) == HANDLE_BYTES
    region = CudaRegion("r", handle, 0, SIZE)
    assert bytes(region.read(0, 16)) == b"\7" * 16
    assert bytes(region.read(SIZE - 4, 4)) == b"\7" * 4
    region.write(4, b"from the server")
    client.stdin.write("\n")
    client.stdin.flush()
    assert bytes.fromhex(client.stdout.readline()) == b"\7\7\7\7from the ser"
    del region


def test_what_the_handle_does_not_lead_to_is_refused(client) -> None:
    handle = bytes.fromhex(client.stdout.readline())
    with pytest.raises(ServingError, match="invalid args"):
        CudaRegion("r", handle, 0, 1 << 40)
    with pytest.raises(ServingError, match="failed to open CUDA IPC handle"):
        CudaRegion("r", bytes(HANDLE_BYTES), 0, SIZE)
    with pytest.raises(ServingError, match="failed to open CUDA IPC handle"):
        CudaRegion("r", handle, 4096, SIZE)
