"""The devices that the instances of one copy of a model have, from the first worker of each to the end of its last."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from trireme.backends.python.placement import Placement, device_requests, stand_in_words
from trireme.config.model_config import ModelConfig
from trireme.devices.environment import Assignment
from trireme.devices.ownership import DeviceOwnership, Owner

log = logging.getLogger(__name__)


class InstanceDevices:
    """Takes them, remembers them, gives them back. Without an ownership every instance runs on the processor, or on
    the GPU that its group names."""

    def __init__(self, ownership: DeviceOwnership | None, model: str, version: int, compat: Iterable[str] = ()) -> None:
        self._ownership = ownership
        self._model = model
        self._version = version
        implied = frozenset() if ownership is None else stand_in_words(ownership.inventory)
        self.compat = implied | frozenset(compat)
        """The words that hold for the model: those that were asked for, and those that `--devices` stands for."""
        self._assigned: dict[Placement, Assignment] = {}

    @property
    def gpu_count(self) -> int:
        """The GPUs that instance groups may name."""
        return 0 if self._ownership is None else self._ownership.inventory.gpu_count

    async def take(self, config: ModelConfig, wanted: Sequence[Placement], some: Iterable[Placement]) -> None:
        """Gets a device for those of the wanted instances that are to be started and have none yet; raises
        ServingError where one cannot be had. Those taken by then stay taken."""
        if self._ownership is None:
            return
        requests = device_requests(config, wanted, self._ownership.inventory, self.compat)
        for placement in some:
            if placement in self._assigned:
                continue
            assignment = await self._ownership.take(self._owner(placement), requests[placement])
            self._assigned[placement] = assignment
            if assignment.kind != "cpu":
                log.info("model instance '%s' is placed on %s", placement.name, assignment.on_machine)

    def release(self, placements: Iterable[Placement]) -> None:
        """Gives back what instances had whose processes have ended."""
        for placement in placements:
            if self._assigned.pop(placement, None) is not None and self._ownership is not None:
                self._ownership.release(self._owner(placement))

    def release_all(self) -> None:
        self.release(list(self._assigned))

    def variables(self, placement: Placement, base: Mapping[str, str]) -> dict[str, str]:
        """What a worker of the instance must find in its environment on top of `base`."""
        assigned = self._assigned.get(placement)
        if assigned is None:
            assigned = Assignment("cuda", placement.device_id) if placement.kind == "GPU" else Assignment()
        return assigned.variables(base)

    def _owner(self, placement: Placement) -> Owner:
        return Owner(self._model, self._version, placement.name, id(self))
