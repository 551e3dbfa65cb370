"""What instances need to run, and how much of it there is: resources by device, or one pool for the whole system."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from trireme.config.model_config import ModelConfig
from trireme.config.options.setting_values import RateLimitResource
from trireme.core.errors import InvalidArgumentError

if TYPE_CHECKING:
    from trireme.proto import model_config_pb2

NO_DEVICE = 0
"""Where instances without a GPU take resources that are not global, as in Triton."""


class ResourceKey(NamedTuple):
    """One pool; `device` is None for a global resource."""

    name: str
    device: int | None


@dataclass(frozen=True, slots=True)
class InstanceLimit:
    """What one instance takes while it executes, and how much its turns weigh."""

    needs: Mapping[ResourceKey, int] = field(default_factory=dict)
    priority: int = 1
    """An instance of priority 2 has half as many turns as one of priority 1."""
    names: Mapping[ResourceKey, str] = field(default_factory=dict)
    """The resources as the configuration spells them; they are compared without case."""


NO_LIMIT = InstanceLimit()


def instance_limits(config: ModelConfig) -> dict[str, InstanceLimit]:
    """The limit of every instance by its name, `<group>_<index>`."""
    limits = {}
    for group in config.message.instance_group:
        devices = tuple(group.gpus) or (NO_DEVICE,)
        for index in range(max(1, group.count) * len(devices)):
            limits[f"{group.name}_{index}"] = _limit(group.rate_limiter, devices[index % len(devices)])
    return limits


class ResourcePools:
    """How much there is of each resource, and how much of it is taken.

    A resource that `--rate-limit-resource` names has that size. Any other is as large as the greediest of the loaded
    instances needs, so that every instance can run and no two that need all of it run together.
    """

    def __init__(self, explicit: Iterable[RateLimitResource] = ()) -> None:
        self._everywhere: dict[str, int] = {}
        self._by_device: dict[ResourceKey, int] = {}
        for entry in explicit:
            if entry.device is None:
                self._everywhere[entry.name] = entry.count
            else:
                self._by_device[ResourceKey(entry.name, entry.device)] = entry.count
        self._models: dict[object, tuple[InstanceLimit, ...]] = {}
        self._sizes: dict[ResourceKey, int] = {}
        self._taken: dict[ResourceKey, int] = {}

    def add(self, owner: object, limits: Iterable[InstanceLimit]) -> None:
        """Takes account of a model's instances; raises InvalidArgumentError where one of them could never run."""
        wanted = tuple(limits)
        known = {key for limit in wanted for key in limit.needs}.union(self._sizes)
        for limit in wanted:
            for key, count in limit.needs.items():
                name = limit.names.get(key, key.name)
                if any(other.name == key.name and (other.device is None) != (key.device is None) for other in known):
                    raise InvalidArgumentError(
                        f'Resource "{name}" is present as both global and device-specific resource in the model '
                        "configuration."
                    )
                self._check_size(key, count, name)
        self._models[owner] = wanted
        self._measure()

    def replace(self, owner: object, limits: Iterable[InstanceLimit]) -> None:
        """The model's instances need something else now; raises as `add` does, and changes nothing then."""
        before = self._models.get(owner, ())
        self.remove(owner)
        try:
            self.add(owner, limits)
        except InvalidArgumentError:
            self.add(owner, before)
            raise

    def remove(self, owner: object) -> None:
        """The model's instances exist no longer."""
        if self._models.pop(owner, None) is not None:
            self._measure()

    def has_room_for(self, limit: InstanceLimit) -> bool:
        """Whether all that the instance needs is free."""
        taken, sizes = self._taken, self._sizes
        return all(taken.get(key, 0) + count <= sizes.get(key, count) for key, count in limit.needs.items())

    def take(self, limit: InstanceLimit) -> None:
        for key, count in limit.needs.items():
            self._taken[key] = self._taken.get(key, 0) + count

    def give_back(self, limit: InstanceLimit) -> None:
        for key, count in limit.needs.items():
            self._taken[key] -= count

    def _check_size(self, key: ResourceKey, count: int, name: str) -> None:
        size = self._explicit_size(key)
        if size is not None and size < count:
            raise InvalidArgumentError(
                f'Resource count for "{name}" is limited to {size} which will prevent scheduling of one or more '
                f"model instances, the minimum required count is {count}"
            )

    def _explicit_size(self, key: ResourceKey) -> int | None:
        """A global resource has no device, so whatever the flag says of one is ignored."""
        if key.device is None:
            named = [count for known, count in self._by_device.items() if known.name == key.name]
            return self._everywhere.get(key.name, max(named, default=None))
        return self._by_device.get(key, self._everywhere.get(key.name))

    def _measure(self) -> None:
        sizes: dict[ResourceKey, int] = {}
        for limits in self._models.values():
            for limit in limits:
                for key, count in limit.needs.items():
                    explicit = self._explicit_size(key)
                    sizes[key] = max(sizes.get(key, 0), count) if explicit is None else explicit
        self._sizes = sizes


def _limit(message: model_config_pb2.ModelRateLimiter, device: int) -> InstanceLimit:
    needs: dict[ResourceKey, int] = {}
    names: dict[ResourceKey, str] = {}
    for entry in message.resources:
        key = ResourceKey(entry.name.lower(), None if getattr(entry, "global") else device)
        needs[key] = needs.get(key, 0) + entry.count
        names[key] = entry.name
    return InstanceLimit({key: count for key, count in needs.items() if count}, message.priority or 1, names)
