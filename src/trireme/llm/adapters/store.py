"""The adapters of an engine: read when they are first asked for, a few kept, the longest unused leaves first."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trireme.core.close_names import closest
from trireme.huggingface.adapters import AdapterListing, has_adapter
from trireme.llm.adapters.adapter import AdaptableExecutor, AdapterError, PlacedAdapter, UnknownAdapterError
from trireme.llm.adapters.reading import read_adapter
from trireme.llm.admission_errors import EngineClosedError, IsWanted, NotWantedError, always
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions

log = logging.getLogger(__name__)

_SHOWN = 20


@dataclass(slots=True)
class _Kept:
    """An adapter in memory."""

    adapter: PlacedAdapter
    user_count: int = 0
    is_leaving: bool = False
    """Whether another takes its place as soon as nobody uses it: new users wait until it is read anew."""


class AdapterStore:
    """May be called from any thread. Adapters are read one after another, in the threads of those who ask."""

    def __init__(self, spec: DecoderSpec, options: EngineOptions, executor: object) -> None:
        """Raises AdapterError where there are to be adapters and the executor cannot compute with them."""
        self._source = options.adapters
        self._listing = AdapterListing(options.adapters) if isinstance(options.adapters, Path) else None
        self._most = options.max_adapters
        self._spec = spec
        self._executor = executor if isinstance(executor, AdaptableExecutor) else None
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._changed = threading.Condition()
        self._turn = threading.Lock()
        """Of who reads an adapter and makes room for it."""
        self._is_closed = False
        if self._source is not None:
            if self._executor is None:
                raise AdapterError(
                    "adapters are computed with PyTorch or numpy for the architectures of the catalog, not by "
                    f"{type(executor).__name__}: use the device cpu, cuda or numpy, or merge the adapter into the model"
                )
            log.info("%d adapters are there to be asked for", len(self.folders()))

    def folders(self) -> Mapping[str, Path]:
        """All that can be asked for by name, those that came since the start included, but for the last moment's."""
        if self._listing is not None:
            return self._listing.folders()
        return self._source if isinstance(self._source, Mapping) else {}

    @property
    def kept_names(self) -> list[str]:
        """Those in memory, the longest unused first."""
        with self._changed:
            return list(self._kept)

    def take_if_kept(self, name: str) -> PlacedAdapter | None:
        """The adapter for one more user, who gives it back; None where it has to be read."""
        with self._changed:
            kept = self._kept.get(name)
            if kept is None or kept.is_leaving:
                return None
            kept.user_count += 1
            self._kept.move_to_end(name)
            return kept.adapter

    def has(self, name: str) -> bool:
        """Whether there is one of that name, in memory or not; looks for no other."""
        if not isinstance(self._source, Path):
            return name in (self._source or {})
        return has_adapter(self._source, name)

    def take(self, name: str, is_wanted: IsWanted = always) -> PlacedAdapter:
        """The same, read where it has to be; waits for room while every kept one is in use.

        Raises UnknownAdapterError, or AdapterError where it cannot be used; others are served all the same. Raises
        NotWantedError where it is not wanted any more before there is room, which `look_again` has it find out, and
        EngineClosedError where it would have to be read after the end.
        """
        found = self.take_if_kept(name)
        if found is not None:
            return found
        folder = self._folder(name)
        with self._turn:
            found = self.take_if_kept(name)
            return found if found is not None else self._load(name, folder, is_wanted)

    def look_again(self) -> None:
        """To be called when it may be that an adapter that waits for room is not wanted any more."""
        with self._changed:
            self._changed.notify_all()

    def give_back(self, adapter: PlacedAdapter) -> None:
        """A user has ended."""
        with self._changed:
            kept = self._kept.get(adapter.name)
            if kept is not None and kept.adapter is adapter:
                kept.user_count -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Those who wait for room are refused."""
        with self._changed:
            self._is_closed = True
            self._kept.clear()
            self._changed.notify_all()

    def _folder(self, name: str) -> Path:
        if isinstance(self._source, Path) and has_adapter(self._source, name):
            return self._source / name  # without a look at the others, of which there may be thousands
        folders = self.folders()
        if isinstance(self._source, Mapping) and name in folders:
            return folders[name]
        if not folders:
            raise UnknownAdapterError(f"there is no adapter '{name}': the model has none")
        close = closest(name, (other for other in folders if other != name))  # which was there a moment ago
        listed = ", ".join(list(folders)[:_SHOWN]) + (", ..." if len(folders) > _SHOWN else "")
        hint = f"did you mean '{close}'?" if close is not None else f"there are: {listed}"
        raise UnknownAdapterError(f"there is no adapter '{name}'; {hint}")

    def _load(self, name: str, folder: Path, is_wanted: IsWanted) -> PlacedAdapter:
        """Reads it before another has to leave for it: it may not fit."""
        assert self._executor is not None, "there are no folders without an executor for them"
        began = time.monotonic()
        try:
            self._check_open()
            adapter = read_adapter(name, folder, self._spec)
            self._make_room(is_wanted)
            placed = PlacedAdapter(name, adapter.salt, self._executor.place_adapter(adapter))
        except AdapterError as error:
            log.error("adapter '%s' cannot be used: %s", name, error)
            raise
        with self._changed:
            self._check_open()
            self._kept[name] = _Kept(placed, user_count=1)
        log.info("adapter '%s' was read in %.2f s", name, time.monotonic() - began)
        return placed

    def _make_room(self, is_wanted: IsWanted) -> None:
        with self._changed:
            try:
                while len(self._kept) >= self._most and is_wanted():
                    idle = next((name for name, kept in self._kept.items() if not kept.user_count), None)
                    if idle is not None:
                        del self._kept[idle]
                        log.info("adapter '%s' has left to make room", idle)
                        continue
                    next(iter(self._kept.values())).is_leaving = True  # or those who use it would never end
                    self._changed.wait()
            finally:
                for kept in self._kept.values():  # another was idle sooner, or none has to leave
                    kept.is_leaving = False
            self._check_open()
            if not is_wanted():
                raise NotWantedError

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineClosedError("the engine was closed")
