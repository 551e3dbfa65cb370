"""Every configuration and load that the default search may measure, and what they are to the queue."""

from __future__ import annotations

from trireme.tools.analyze.configuration.space import Space
from trireme.tools.analyze.configuration.variant_config import can_batch, instance_count, is_batching
from trireme.tools.analyze.search.fit.predictor import Point
from trireme.tools.analyze.trial import Load, Setting, Trial

_FULL_QUEUE = 4
"""Clients beyond so many batches for each instance only wait longer."""
_OWN_QUEUE = 2
"""So many batches for each instance are enough to see what the model's own configuration does."""


class Candidates:
    """Those of one batch size of requests."""

    def __init__(self, space: Space, batch_size: int) -> None:
        self._tunable = space.tunables[0]
        self._choice = space.choices[0]
        self._batch_size = batch_size
        values = {axis.field: axis.values for axis in self._tunable.axes}
        self.instances: tuple[int | None, ...] = values.get("instances", (None,))
        batches: tuple[int | None, ...] = values.get("max_batch_size", (None,))
        fitting = tuple(value for value in batches if value is None or value >= batch_size)
        self.batches: tuple[int | None, ...] = fitting or (batch_size,)
        self.model = self._choice.model

    @property
    def count(self) -> int:
        """With all loads."""
        return len(self.instances) * len(self.batches) * len(self._choice.concurrencies)

    def all(self) -> list[Trial]:
        """Without loads that only add to the queue."""
        fewest = self._choice.concurrencies[0]
        trials = [
            self.trial(Setting(instances, batch), clients)
            for instances in self.instances
            for batch in self.batches
            for clients in self._choice.concurrencies
        ]
        return [trial for trial in trials if trial.loads[0].concurrency <= max(fewest, self._most_clients(trial))]

    def own(self) -> list[Trial]:
        """The model's own configuration under the loads that it can use, the lightest first."""
        own = self._tunable.own
        batch = max(1, int(own.get("max_batch_size", 0)) if is_batching(own) else 1)
        room = max(_OWN_QUEUE * instance_count(own) * batch, self._choice.concurrencies[0])
        return [self.trial(Setting(), clients) for clients in self._choice.concurrencies if clients <= room]

    def trial(self, setting: Setting, clients: int) -> Trial:
        return Trial(((self._tunable.name, setting),), (Load(self.model, clients, self._batch_size),))

    def clients_near(self, wanted: float) -> int:
        """The largest of the loads that is not above this, or the lightest."""
        return self._choice.nearest(wanted, self._batch_size).concurrency

    def requests_of_batch(self, setting: Setting) -> int:
        return max(1, (setting.max_batch_size or 1) // self._batch_size)

    def point(self, trial: Trial) -> Point:
        """As the queue sees it."""
        own, setting = self._tunable.own, trial.settings[0][1]
        instances = setting.instances if setting.instances is not None else instance_count(own)
        largest = setting.max_batch_size
        if largest is None:
            joins = is_batching(own) and can_batch(own)
            largest = int(own.get("max_batch_size", 0)) if joins else self._batch_size
        return Point(instances, max(1, largest), trial.loads[0].concurrency, self._batch_size)

    def _most_clients(self, trial: Trial) -> int:
        point = self.point(trial)
        return _FULL_QUEUE * point.instances * max(1, point.largest_batch // self._batch_size)
