"""CUDA regions against a stand-in for the two libraries, and on machines without a GPU."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import pytest

from trireme.core.errors import ErrorKind, ServingError
from trireme.memory import cuda

HANDLE = b"h" * cuda.HANDLE_BYTES


class StandIn:
    """The calls of libcudart and libcuda over ordinary memory, which a handle of 64 `h` leads to."""

    def __init__(self, size_bytes: int) -> None:
        self._name = "a stand-in"
        self.memory = ctypes.create_string_buffer(size_bytes)
        self.address = ctypes.addressof(self.memory)
        self.closed: list[int] = []
        for name in ("cudaGetErrorString", "cudaIpcOpenMemHandle", "cudaIpcCloseMemHandle", "cudaMemcpy"):
            setattr(self, name, Call(getattr(self, f"_{name}")))
        self.cuMemGetAddressRange_v2 = Call(self._range)

    def cudaGetDeviceCount(self, count: Any) -> int:
        count._obj.value = 1
        return 0

    def cudaSetDevice(self, device: Any) -> int:
        return 0 if device.value == 0 else 101

    def cudaGetLastError(self) -> int:
        return 0

    def _cudaGetErrorString(self, status: int) -> bytes:
        return {101: b"invalid device ordinal", 1: b"invalid argument"}[status]

    def _cudaIpcOpenMemHandle(self, address: Any, handle: Any, flags: int) -> int:
        if bytes(handle) != HANDLE:
            return 1
        address._obj.value = self.address
        return 0

    def _cudaIpcCloseMemHandle(self, address: int) -> int:
        self.closed.append(address)
        return 0

    def _cudaMemcpy(self, target: int, source: int, size_bytes: int, kind: int) -> int:
        ctypes.memmove(target, source, size_bytes)
        return 0

    def _range(self, base: Any, size_bytes: Any, address: int) -> int:
        base._obj.value, size_bytes._obj.value = self.address, len(self.memory)
        return 0


class Call:
    """A foreign function: callable, with types that can be set."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    libraries = StandIn(100)
    runtime = cuda.CudaRuntime(libraries, libraries)  # type: ignore[arg-type]
    monkeypatch.setattr(cuda, "load_runtime", lambda: runtime)
    return libraries


def refusal(*arguments: Any) -> tuple[ErrorKind, str]:
    with pytest.raises(ServingError) as caught:
        cuda.CudaRegion(*arguments)
    return caught.value.kind, caught.value.message


def test_without_a_gpu_the_region_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "load_runtime", lambda: None)
    text = "failed to register CUDA shared memory region: 'r', GPUs not supported"
    assert refusal("r", HANDLE, 0, 8) == (ErrorKind.INVALID_ARGUMENT, text)


def test_a_library_that_is_not_there_is_no_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "_libraries", lambda: iter(["libnosuch-cudart.so"]))
    assert cuda.load_runtime.__wrapped__() is None


def test_data_goes_to_the_gpu_and_back(gpu: StandIn) -> None:
    region = cuda.CudaRegion("r", HANDLE, 0, 100)
    region.write(10, b"written")
    region.write(20, memoryview(b"viewed"))
    assert gpu.memory.raw[10:17] == b"written"
    assert bytes(region.read(10, 16)) == b"written\0\0\0viewed"
    assert bytes(region.read(0, 0)) == b""


def test_the_handle_is_closed_with_the_region(gpu: StandIn) -> None:
    region = cuda.CudaRegion("r", HANDLE, 0, 100)
    assert region.device_id == 0
    assert gpu.closed == []
    del region
    assert gpu.closed == [gpu.address]


def test_more_than_the_allocation_is_refused(gpu: StandIn) -> None:
    text = "failed to register shared memory region 'r': invalid args"
    for byte_size in (101, 0):
        assert refusal("r", HANDLE, 0, byte_size) == (ErrorKind.INVALID_ARGUMENT, text)
    gc.collect()  # the errors still had the regions in their tracebacks
    assert gpu.closed == [gpu.address, gpu.address]


def test_wrong_handles_and_devices_are_told(gpu: StandIn) -> None:
    text = "failed to open CUDA IPC handle: "
    assert refusal("r", b"x" * 64, 0, 8) == (ErrorKind.INVALID_ARGUMENT, text + "invalid argument")
    assert refusal("r", HANDLE, 3, 8) == (ErrorKind.INVALID_ARGUMENT, text + "invalid device ordinal")
    assert refusal("r", HANDLE, -1, 8) == (ErrorKind.INVALID_ARGUMENT, text + "there is no device -1")
