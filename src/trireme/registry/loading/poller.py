"""Poll mode: looks at the repositories again and again, and makes the served models follow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from trireme.core.errors import ServingError
from trireme.core.load_failure import LoadFailure
from trireme.observe.logs import leaving_out_reported
from trireme.registry.lifecycle import ModelRecord
from trireme.registry.loading.model_loader import ModelLoader, Outcome
from trireme.registry.loading.retries import Retries
from trireme.registry.loading.version_switch import VersionsFailedError
from trireme.registry.repository.folder_stamp import FolderStamp
from trireme.registry.repository.repositories import ModelId, Repositories, Scan
from trireme.registry.served_models import ServedModels

log = logging.getLogger(__name__)

Begin = Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]
"""Runs an operation beside everything else; it is cancelled when the server stops."""
Report = Callable[[Sequence[LoadFailure]], None]
"""Shows why models could not be loaded."""
Found = dict[ModelId, tuple[Path, FolderStamp]]
"""Model folders, and what they looked like."""


class RepositoryPoller:
    """New folders are loaded, changed ones reloaded, and what has gone is unloaded. What fails is tried again at once
    when its files change, and seldom otherwise; the same error is logged once. A load that takes longer than the time
    between two looks goes on beside the next one, which leaves the models that it is about alone."""

    def __init__(
        self,
        models: ServedModels,
        repositories: Repositories,
        loader: ModelLoader,
        begin: Begin,
        failed: Iterable[str] = (),
    ) -> None:
        """`failed` are the models whose failure was told already."""
        self._models = models
        self._repositories = repositories
        self._loader = loader
        self._begin = begin
        self._leaving: set[ModelId] = set()
        self._retries = Retries()
        self._told_at_start = set(failed)
        self.retries_unchanged = True
        self.report: Report | None = None
        """In place of the log's lines."""
        self._told = ""
        self._unreadable: dict[ModelId, str] = {}

    async def run(self, interval_seconds: float) -> None:
        """Looks at every interval until it is cancelled; a look that fails is logged and followed by the next."""
        while True:
            await asyncio.sleep(interval_seconds)
            try:
                await self.look(interval_seconds)
            except Exception:
                log.exception("failed to poll the model repositories")

    async def look(self, patience_s: float | None = None) -> None:
        """One look at the repositories, and the loads and unloads it leads to; loads are waited for for so long."""
        try:
            scan = await asyncio.to_thread(self._repositories.scan)
        except OSError as error:  # for example a network share that is away: no reason to unload its models
            self._tell_once(f"failed to poll model repository '{error.filename}': {error.strerror}")
            return
        self._tell_once(
            "\n".join(
                f"failed to poll model '{name}': not unique across all model repositories"
                for name in sorted(scan.duplicates)
            )
        )
        self._forget_all_but(scan.folders)
        gone = [known for known in self._models.records if self._is_gone(known, scan) and known not in self._leaving]
        await self._wait_for([self._begin(self._remove(model_id)) for model_id in gone], patience_s)
        idle = {known: folder for known, folder in scan.folders.items() if not self._loader.is_at_work_on(known.name)}
        changed, due = await asyncio.to_thread(self._to_load, idle)
        loads = [self._load(changed, is_repetition=False)] if changed else []
        loads += [self._load(due, is_repetition=True)] if due else []
        await self._wait_for([self._begin(load) for load in loads], patience_s)

    @staticmethod
    async def _wait_for(operations: list[asyncio.Task[Any]], patience_s: float | None) -> None:
        if operations:
            done, _ = await asyncio.wait(operations, timeout=patience_s)
            for operation in done:
                await operation

    async def _remove(self, model_id: ModelId) -> None:
        self._leaving.add(model_id)
        self._retries.forget(model_id)
        try:
            await self._loader.remove(model_id)
        finally:
            self._leaving.discard(model_id)

    def _forget_all_but(self, folders: Mapping[ModelId, Path]) -> None:
        """What was wrong with folders that are gone; a model that was never loaded from one has no record that ends."""
        self._retries.forget_all_but(folders)
        self._unreadable = {known: reason for known, reason in self._unreadable.items() if known in folders}
        for model_id in [known for known in self._models.unreadable if known not in folders]:
            del self._models.unreadable[model_id]

    def _tell_once(self, text: str) -> None:
        """Logs what keeps the look from being complete, unless the last look said the same."""
        if text and text != self._told:
            log.error("%s", text)
        self._told = text

    def _tell_unreadable(self, model_id: ModelId, reason: str) -> None:
        """Logs why a folder cannot be looked at, unless the last look, or the start, said the same."""
        if self._unreadable.get(model_id) != reason and model_id.name not in self._told_at_start:
            log.error("Poll failed for model directory '%s': %s", model_id.name, reason)
        self._unreadable[model_id] = reason

    def _is_gone(self, model_id: ModelId, scan: Scan) -> bool:
        return model_id not in scan.folders and self._models.records[model_id].is_wanted

    async def _load(self, found: Found, *, is_repetition: bool) -> None:
        """Loads; what failed with the same files before is logged only where it fails for another reason."""
        under_way = {model_id.name for model_id in found}

        def note(outcome: Outcome) -> None:
            for model_id in outcome.keys() & found.keys():
                under_way.discard(model_id.name)
                self._note(model_id, *found[model_id], outcome[model_id], is_repetition=is_repetition)

        is_silent = is_repetition or self.report is not None
        with leaving_out_reported(under_way) if is_silent else nullcontext():
            await self._loader.load_all({name: folder for name, (folder, _) in found.items()}, note)

    def _note(
        self, model_id: ModelId, folder: Path, stamp: FolderStamp, error: ServingError | None, *, is_repetition: bool
    ) -> None:
        if error is None:
            self._retries.forget(model_id)
            return
        is_new = self._retries.note_failure(model_id, stamp, error.message)
        record = self._models.records.get(model_id)  # a folder with nothing to read in it yet has none
        if not is_new:
            return
        if self.report is not None:
            reason = record.reason if record is not None and isinstance(error, VersionsFailedError) else ""
            self.report([LoadFailure(model_id.name, folder, reason or error.message)])
        elif is_repetition:
            log.error("failed to load '%s' again: %s", model_id.name, error.message)
        if not is_repetition:
            serving = "; the copy before it serves on" if record is not None and record.ready_models else ""
            log.info("'%s' is loaded again as soon as its files change%s", model_id.name, serving)

    def _to_load(self, folders: Mapping[ModelId, Path]) -> tuple[Found, Found]:
        """What is new or has changed, and what failed before and is to be tried again."""
        changed: Found = {}
        due: Found = {}
        for model_id, folder in folders.items():
            try:
                stamp = FolderStamp.of(folder)
            except OSError as error:
                self._tell_unreadable(model_id, str(error))
                continue
            self._unreadable.pop(model_id, None)
            if not self._is_changed(self._models.records.get(model_id), folder, stamp):
                continue
            if model_id.name in self._told_at_start:
                self._told_at_start.remove(model_id.name)
                if not self._note_start(model_id, stamp):
                    due[model_id] = folder, stamp
                    continue
            if not self._retries.is_known(model_id, stamp):
                changed[model_id] = folder, stamp
            elif self.retries_unchanged and self._retries.is_due(model_id):
                due[model_id] = folder, stamp
        return changed, due

    def _note_start(self, model_id: ModelId, stamp: FolderStamp) -> bool:
        """Takes over a failure that the start told of; whether it is known which files it was about."""
        record = self._models.records.get(model_id)
        failed = record.failed if record is not None else None
        self._retries.note_failure(model_id, failed or stamp, None)
        return failed is not None

    @staticmethod
    def _is_changed(record: ModelRecord | None, folder: Path, stamp: FolderStamp) -> bool:
        loaded = record.loaded if record is not None else None
        if record is None or loaded is None or loaded.stamp is None or loaded.folder != folder:
            return True
        if record.refused is not None and record.ready_models:
            return not record.refused.is_same_as(stamp)
        return record.retries or not loaded.stamp.is_same_as(stamp)
