"""Regions of system shared memory: made, filled, registered with the server, and taken away again."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from multiprocessing.shared_memory import SharedMemory

from trireme.tools.perf.control.port import ServerCalls
from trireme.tools.perf.data.batches import RegionPart, RequestContent
from trireme.tools.perf.data.tensors import tensor_bytes
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.model import ModelDescription
from trireme.tools.perf.options import InputOptions


class SharedRegions:
    """The regions of one run."""

    def __init__(self, calls: ServerCalls) -> None:
        self._calls = calls
        self._regions: dict[str, SharedMemory] = {}
        self._prefix = f"perf_{os.getpid()}"

    def place_inputs(self, content: RequestContent) -> RequestContent:
        """The same request with its tensors in a region."""
        inputs = []
        for one in content.inputs:
            name = self._create(f"input_{len(self._regions)}_{one.name}", len(one.data))
            memory = self._regions[name].buf
            assert memory is not None
            memory[: len(one.data)] = one.data
            inputs.append(replace(one, place=RegionPart(name, len(one.data))))
        return replace(content, inputs=tuple(inputs))

    def place_outputs(self, model: ModelDescription, options: InputOptions) -> dict[str, RegionPart | None]:
        """A region for each output; its size is known, or --output-shared-memory-size says it."""
        places: dict[str, RegionPart | None] = {}
        for spec in model.outputs:
            known = None if any(dim < 0 for dim in spec.shape) else tensor_bytes(spec.datatype, spec.shape)
            size = (options.output_region_bytes if known is None else known) * options.batch_size
            places[spec.name] = RegionPart(self._create(f"output_{spec.name}", size), size)
        return places

    def remove(self) -> None:
        """Unregisters and deletes them all."""
        for name, memory in self._regions.items():
            with contextlib.suppress(PerfError):
                self._calls.unregister_region(name)
            memory.close()
            with contextlib.suppress(FileNotFoundError):
                memory.unlink()
        self._regions.clear()

    def _create(self, what: str, size: int) -> str:
        name = f"{self._prefix}_{what}".replace("/", "_")
        try:
            memory = SharedMemory(name, create=True, size=max(1, size))
        except OSError as error:
            raise PerfError(f"failed to create a region of shared memory of {size} bytes: {error.strerror}") from None
        self._regions[name] = memory
        try:
            self._calls.register_region(name, f"/{name}", max(1, size))
        except PerfError as error:
            raise PerfError(f"failed to register shared memory region: {error}") from None
        return name
