"""A region of GPU memory that a client made: opened by its handle through the CUDA runtime, which is loaded when the
first region is registered."""

from __future__ import annotations

import ctypes
import ctypes.util
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from trireme.core.elements import Buffer
from trireme.core.errors import InternalError, InvalidArgumentError

HANDLE_BYTES = 64
_LIBRARIES = ("libcudart.so", "libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0")
_IN_PACKAGES = ("nvidia/cu*/lib/libcudart.so.*", "nvidia/cuda_runtime/lib/libcudart.so.*")
_DRIVER = "libcuda.so.1"
_TO_DEVICE, _TO_HOST = 1, 2
_LAZY_PEER_ACCESS = 1


class CudaRegion:
    """Bytes of a GPU's memory. The handle is closed when the last request that uses the region is gone."""

    __slots__ = ("_address", "_runtime", "byte_size", "device_id", "name")

    def __init__(self, name: str, raw_handle: bytes, device_id: int, byte_size: int) -> None:
        """Opens the handle; raises ServingError where there is no GPU or the handle is none of its."""
        self._address = 0
        self.name = name
        self.device_id = device_id
        self.byte_size = byte_size
        runtime = load_runtime()
        if runtime is None:
            raise InvalidArgumentError(f"failed to register CUDA shared memory region: '{name}', GPUs not supported")
        self._runtime = runtime
        try:
            self._address = runtime.open_handle(raw_handle, device_id)
            self._check_size()
        except CudaError as error:
            raise InvalidArgumentError(f"failed to open CUDA IPC handle: {error}") from None

    def read(self, offset: int, size_bytes: int, _is_copied: bool = True) -> Buffer:
        """A copy of the bytes in the server's memory, always; the caller keeps within the region."""
        data = bytearray(size_bytes)
        if size_bytes:
            host = (ctypes.c_char * size_bytes).from_buffer(data)
            self._copy(ctypes.addressof(host), self._address + offset, size_bytes, _TO_HOST)
        return data

    def write(self, offset: int, data: Buffer) -> None:
        """Copies data in; the caller keeps within the region."""
        if len(data):
            whole = data if isinstance(data, bytes) else bytes(data)
            source = ctypes.cast(ctypes.c_char_p(whole), ctypes.c_void_p).value or 0
            self._copy(self._address + offset, source, len(whole), _TO_DEVICE)

    def _copy(self, target: int, source: int, size_bytes: int, kind: int) -> None:
        try:
            self._runtime.copy(self.device_id, target, source, size_bytes, kind)
        except CudaError as error:
            raise InternalError(f"unable to copy between the server and CUDA region '{self.name}': {error}") from None

    def _check_size(self) -> None:
        if not 0 < self.byte_size <= self._runtime.size_from(self._address):
            raise InvalidArgumentError(f"failed to register shared memory region '{self.name}': invalid args")

    def __del__(self) -> None:
        if self._address:
            self._runtime.close_handle(self.device_id, self._address)


class CudaError(Exception):
    """What the CUDA runtime refused."""


class CudaRuntime:
    """The few calls of libcudart that regions need, and one of the driver below it."""

    class _Handle(ctypes.Structure):
        _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)

    def __init__(self, library: ctypes.CDLL, driver: ctypes.CDLL) -> None:
        self.path = str(library._name)  # the file it is in
        self._library = library
        self._address_range = driver.cuMemGetAddressRange_v2
        self._address_range.argtypes = (
            ctypes.POINTER(ctypes.c_uint64),
            ctypes.POINTER(ctypes.c_size_t),
            ctypes.c_uint64,
        )
        library.cudaGetErrorString.restype = ctypes.c_char_p
        library.cudaIpcOpenMemHandle.argtypes = (ctypes.POINTER(ctypes.c_void_p), self._Handle, ctypes.c_uint)
        library.cudaIpcCloseMemHandle.argtypes = (ctypes.c_void_p,)
        library.cudaMemcpy.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def device_count(self) -> int:
        """How many GPUs there are; none where the driver is missing."""
        count = ctypes.c_int(0)
        return count.value if self._library.cudaGetDeviceCount(ctypes.byref(count)) == 0 else 0

    def open_handle(self, raw_handle: bytes, device_id: int) -> int:
        """The address of a client's memory in this process."""
        self._use(device_id)
        address = ctypes.c_void_p(0)
        handle = self._Handle.from_buffer_copy(raw_handle)
        self._check(self._library.cudaIpcOpenMemHandle(ctypes.byref(address), handle, _LAZY_PEER_ACCESS))
        return address.value or 0

    def close_handle(self, device_id: int, address: int) -> None:
        """Gives the memory up; that it fails matters to nobody."""
        self._library.cudaSetDevice(ctypes.c_int(device_id))
        self._library.cudaIpcCloseMemHandle(address)

    def size_from(self, address: int) -> int:
        """How many bytes the allocation has from this address on, which only the driver knows."""
        base, size_bytes = ctypes.c_uint64(0), ctypes.c_size_t(0)
        status = self._address_range(ctypes.byref(base), ctypes.byref(size_bytes), address)
        if status:
            raise CudaError(f"the driver does not know the memory behind the handle (CUresult {status})")
        return base.value + size_bytes.value - address

    def copy(self, device_id: int, target: int, source: int, size_bytes: int, kind: int) -> None:
        """Copies and waits for the end of it."""
        self._use(device_id)
        self._check(self._library.cudaMemcpy(target, source, size_bytes, kind))

    def _use(self, device_id: int) -> None:
        if not 0 <= device_id < 2**31:
            raise CudaError(f"there is no device {device_id}")
        self._check(self._library.cudaSetDevice(ctypes.c_int(device_id)))  # it holds for one thread

    def _check(self, status: int) -> None:
        if status:
            text: bytes | None = self._library.cudaGetErrorString(status)
            self._library.cudaGetLastError()  # else the next call reports it again
            raise CudaError((text or b"unknown error").decode("utf-8", "replace"))


@cache
def load_runtime() -> CudaRuntime | None:
    """The CUDA runtime; None where it is not installed or there is no GPU."""
    for name in _libraries():
        try:
            runtime = CudaRuntime(ctypes.CDLL(name), ctypes.CDLL(_DRIVER))
        except (OSError, AttributeError):
            continue
        return runtime if runtime.device_count() > 0 else None
    return None


def _libraries() -> Iterator[str]:
    """Where the runtime may be: known to the loader, or brought along by a Python package of NVIDIA's."""
    found = ctypes.util.find_library("cudart")
    if found:
        yield found
    yield from _LIBRARIES
    for folder in sys.path:
        for pattern in _IN_PACKAGES:
            yield from map(str, sorted(Path(folder).glob(pattern), reverse=True))
