"""Poll mode: looks at the repositories again and again, and makes the served models follow."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from trireme.registry.lifecycle import ModelRecord
from trireme.registry.loading.model_loader import ModelLoader
from trireme.registry.repository.folder_stamp import FolderStamp
from trireme.registry.repository.repositories import ModelId, Repositories, Scan
from trireme.registry.served_models import ServedModels

log = logging.getLogger(__name__)


class RepositoryPoller:
    """New folders are loaded, changed ones reloaded, and what has gone is unloaded."""

    def __init__(self, models: ServedModels, repositories: Repositories, loader: ModelLoader) -> None:
        self._models = models
        self._repositories = repositories
        self._loader = loader

    async def run(self, interval_seconds: float) -> None:
        """Looks at every interval until it is cancelled; a look that fails is logged and followed by the next."""
        while True:
            await asyncio.sleep(interval_seconds)
            try:
                await self.look()
            except Exception:
                log.exception("failed to poll the model repositories")

    async def look(self) -> None:
        """One look at the repositories, and the loads and unloads it leads to."""
        try:
            scan = await asyncio.to_thread(self._repositories.scan)
        except OSError as error:  # for example a network share that is away: no reason to unload its models
            log.error("failed to poll model repository '%s': %s", error.filename, error.strerror)
            return
        for name in sorted(scan.duplicates):
            log.error("failed to poll model '%s': not unique across all model repositories", name)
        for model_id in [known for known in self._models.records if self._is_gone(known, scan)]:
            await self._loader.remove(model_id)
        changed = await asyncio.to_thread(self._changed, scan)
        if changed:
            await self._loader.load_all(changed)

    def _is_gone(self, model_id: ModelId, scan: Scan) -> bool:
        return model_id not in scan.folders and self._models.records[model_id].is_wanted

    def _changed(self, scan: Scan) -> dict[ModelId, Path]:
        changed = {}
        for model_id, folder in scan.folders.items():
            try:
                if self._is_changed(self._models.records.get(model_id), folder):
                    changed[model_id] = folder
            except OSError as error:
                log.error("Poll failed for model directory '%s': %s", model_id.name, error)
        return changed

    @staticmethod
    def _is_changed(record: ModelRecord | None, folder: Path) -> bool:
        loaded = record.loaded if record is not None else None
        if record is None or loaded is None or loaded.stamp is None or loaded.folder != folder:
            return True
        if record.refused is not None and record.ready_models:
            return not record.refused.is_same_as(FolderStamp.of(folder))
        return record.retries or not loaded.stamp.is_same_as(FolderStamp.of(folder))
