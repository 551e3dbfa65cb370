"""The memory that clients share with the server: which regions there are, and tensors in them."""

from __future__ import annotations

from trireme.core.elements import Buffer
from trireme.core.errors import (
    AlreadyExistsError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
    UnsupportedError,
)
from trireme.core.request import InferenceRequest
from trireme.core.tensor import Tensor
from trireme.memory.cuda import HANDLE_BYTES, CudaRegion
from trireme.memory.system import SystemRegion

CUDA_HANDLE_BYTES = HANDLE_BYTES
"""The size of the handles that GPU memory is registered with."""
DISABLED = "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
DEFAULT_MAX_REGIONS = 4096
_KINDS: dict[str, type[SystemRegion | CudaRegion]] = {"system": SystemRegion, "cuda": CudaRegion}
_LABELS = {"system": "system", "cuda": "CUDA"}
_OTHER = {"system": "cuda", "cuda": "system"}


class SharedMemory:
    """Keeps the registered regions by name. To unregister one only forgets it: requests that run with it hold it."""

    def __init__(
        self, is_allowed: bool = False, copies_inputs: bool = False, max_regions: int = DEFAULT_MAX_REGIONS
    ) -> None:
        self.is_allowed = is_allowed
        self._max_regions = max_regions
        # With a response cache: a client that changes an input after it was looked up would spoil the cache for all.
        self._copies_inputs = copies_inputs
        self._regions: dict[str, SystemRegion | CudaRegion] = {}
        self._by_mapping: dict[int, SystemRegion] = {}  # by the identity of what views of them are views of

    @property
    def region_count(self) -> int:
        """How many are registered."""
        return len(self._regions)

    def register_system(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Maps bytes of the shared memory object that has this key."""
        self._check_new(name)
        region = SystemRegion(name, key, offset, byte_size)
        self._regions[name] = self._by_mapping[id(region.mapping)] = region

    def register_cuda(self, name: str, raw_handle: bytes, device_id: int, byte_size: int) -> None:
        """Opens the GPU memory that has this handle."""
        self._check_new(name)
        self._regions[name] = CudaRegion(name, raw_handle, device_id, byte_size)

    def unregister(self, kind: str, name: str) -> None:
        """Forgets a region, or all of the kind where the name is empty; where there is none there is none to forget."""
        self.check_allowed()
        forgotten = [
            region.name
            for region in self._regions.values()
            if isinstance(region, _KINDS[kind]) and name in ("", region.name)
        ]
        for entry in forgotten:
            region = self._regions.pop(entry)
            if isinstance(region, SystemRegion):
                del self._by_mapping[id(region.mapping)]

    def system_regions(self, name: str) -> list[SystemRegion]:
        """The region of this name, or all where it is empty; raises NotFoundError."""
        found = self._of_kind("system", name)
        return [region for region in found if isinstance(region, SystemRegion)]

    def cuda_regions(self, name: str) -> list[CudaRegion]:
        """The same for regions on GPUs."""
        found = self._of_kind("cuda", name)
        return [region for region in found if isinstance(region, CudaRegion)]

    def read(self, name: str, offset: int, size_bytes: int) -> Buffer:
        """The bytes of a region that are an input; raises ServingError where they are not all in the region."""
        return self._find(name, offset, size_bytes).read(offset, size_bytes, self._copies_inputs)

    def target(self, name: str, offset: int, size_bytes: int) -> RegionTarget:
        """Where an output goes; raises ServingError where that is not all in the region."""
        return RegionTarget(self._find(name, offset, size_bytes), offset, size_bytes)

    def regions_of(self, request: InferenceRequest) -> list[SystemRegion]:
        """The registered system regions that inputs of the request lie in."""
        used: list[SystemRegion] = []
        if self._by_mapping:
            for tensor in request.inputs.values():
                if type(tensor.data) is memoryview:
                    region = self._by_mapping.get(id(tensor.data.obj))
                    if region is not None and region not in used:
                        used.append(region)
        return used

    def inputs_inside(self, request: InferenceRequest) -> list[str]:
        """The inputs whose data is a view of a registered system region; small ones were copied out of it."""
        return [
            tensor.name
            for tensor in request.inputs.values()
            if type(tensor.data) is memoryview and id(tensor.data.obj) in self._by_mapping
        ]

    def check_allowed(self) -> None:
        """Raises UnsupportedError where the server was started without shared memory for clients."""
        if not self.is_allowed:
            raise UnsupportedError(DISABLED)

    def _check_new(self, name: str) -> None:
        self.check_allowed()
        if name in self._regions:
            raise AlreadyExistsError(f"shared memory region '{name}' already in manager")
        if len(self._regions) >= self._max_regions:
            raise UnavailableError(
                f"{len(self._regions)} shared memory regions are registered, which is the limit. Unregister one, or "
                "start the server with a larger --max-shared-memory-regions."
            )

    def _of_kind(self, kind: str, name: str) -> list[SystemRegion | CudaRegion]:
        if not name:
            return [self._regions[key] for key in sorted(self._regions)]
        region = self._regions.get(name)
        if region is None:
            raise NotFoundError(f"Unable to find {kind} shared memory region: '{name}'")
        if not isinstance(region, _KINDS[kind]):
            raise NotFoundError(
                f"The region named '{name}' is registered as {_LABELS[_OTHER[kind]]} shared memory, not "
                f"{_LABELS[kind]} shared memory"
            )
        return [region]

    def _find(self, name: str, offset: int, size_bytes: int) -> SystemRegion | CudaRegion:
        region = self._regions.get(name)
        if region is None:
            raise NotFoundError(f"Unable to find shared memory region: '{name}'")
        if not 0 <= offset < region.byte_size:
            raise InvalidArgumentError(f"Invalid offset for shared memory region: '{name}'")
        if not 0 <= size_bytes <= region.byte_size - offset:
            raise InvalidArgumentError(f"Invalid offset + byte size for shared memory region: '{name}'")
        return region


class RegionTarget:
    """Implements `core.request.OutputTarget`; it holds the region until its request is answered."""

    __slots__ = ("_offset", "_region", "_size_bytes")

    def __init__(self, region: SystemRegion | CudaRegion, offset: int, size_bytes: int) -> None:
        self._region = region
        self._offset = offset
        self._size_bytes = size_bytes

    def write(self, tensor: Tensor) -> Tensor:
        """Copies the data in and returns the tensor without it; raises ServingError where it does not fit."""
        needed = len(tensor.data)
        if needed > self._size_bytes:
            raise InternalError(
                f"shared memory size specified with the request for output '{tensor.name}' ({self._size_bytes} bytes) "
                f"should be at least {needed} bytes to hold the results"
            )
        self._region.write(self._offset, tensor.data)
        return Tensor(tensor.name, tensor.datatype, tensor.shape, b"")
