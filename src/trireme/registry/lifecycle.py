"""The states of a model's versions, and what is remembered about a model between loads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trireme.config.message import ConfigMessage
from trireme.registry.model import Model
from trireme.registry.repository.folder_stamp import FolderStamp
from trireme.registry.repository.load_override import LoadOverride
from trireme.registry.repository.repositories import ModelId

UNKNOWN = "UNKNOWN"
LOADING = "LOADING"
READY = "READY"
UNLOADING = "UNLOADING"
UNAVAILABLE = "UNAVAILABLE"

UNLOADED_REASON = "unloaded"


class VersionLife:
    """One version of a model from its first load on. Holds the loaded model only while it serves or drains."""

    __slots__ = ("failure", "model", "reason", "state", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.state = UNKNOWN
        self.reason = ""
        self.failure = ""  # why the last load failed, also of a version that went on serving
        self.model: Model | None = None

    def begin_loading(self) -> None:
        """A version that serves stays READY while its next copy loads."""
        if self.state != READY:
            self.state, self.reason = LOADING, ""

    def become_ready(self, model: Model) -> Model | None:
        """Puts the model in place; returns the one that served until now."""
        replaced = self.model if self.state == READY else None
        self.state, self.reason, self.model = READY, "", model
        self.failure = ""
        return replaced

    def fail(self, reason: str) -> None:
        """A version that serves goes on serving when its next copy fails."""
        self.failure = reason
        if self.state != READY:
            self.state, self.reason, self.model = UNAVAILABLE, reason, None

    def begin_unloading(self) -> Model | None:
        """Returns the model that is to finish its requests and end; None where none served."""
        self.reason = UNLOADED_REASON if self.state == UNAVAILABLE else ""
        if self.state != READY:
            return None
        self.state = UNLOADING
        return self.model

    def finish_unloading(self, model: Model) -> None:
        """Keeps the reason of a version that ends because it failed. Does nothing where another copy took the place
        in the meantime."""
        if self.model is not model or self.state != UNLOADING:
            return
        self.state, self.reason, self.model = UNAVAILABLE, self.reason or UNLOADED_REASON, None


@dataclass(frozen=True, slots=True)
class PolledModel:
    """A model folder as one look at it found it: everything needed to load it."""

    id: ModelId
    folder: Path
    stamp: FolderStamp | None
    """None for a temporary folder, which nobody changes."""
    override: LoadOverride | None
    message: ConfigMessage
    """The configuration before the backend completes it."""
    versions: tuple[int, ...]
    """Those that the version policy selects."""
    dependencies: tuple[str, ...] = ()
    """The composing models of an ensemble, by name."""


class ModelRecord:
    """What the registry knows of one model. After an unload only names, states and reasons remain."""

    __slots__ = (
        "failed",
        "failure",
        "id",
        "is_explicit",
        "is_invalid",
        "is_temporary",
        "is_wanted",
        "loaded",
        "refused",
        "retries",
        "versions",
    )

    def __init__(self, model_id: ModelId) -> None:
        self.id = model_id
        self.versions: dict[int, VersionLife] = {}
        self.loaded: PolledModel | None = None  # what was last loaded, or tried
        self.retries = False  # the last load failed: the next one is no repetition
        self.failed: FolderStamp | None = None  # what the last load was made of that failed
        self.refused: FolderStamp | None = None  # what failed and cost the old copy its device: not to be tried again
        self.failure = ""
        self.is_invalid = False  # an ensemble whose composing models do not exist or form a circle
        self.is_temporary = False  # last loaded from files that came with the request
        self.is_wanted = False  # asked for and not unloaded since
        self.is_explicit = False  # asked for by name, not on behalf of an ensemble

    def life(self, version: int) -> VersionLife:
        if version not in self.versions:
            self.versions[version] = VersionLife(version)
        return self.versions[version]

    @property
    def ready_models(self) -> list[Model]:
        """Those that serve, by ascending version."""
        lives = (self.versions[version] for version in sorted(self.versions))
        return [life.model for life in lives if life.state == READY and life.model is not None]

    @property
    def dependencies(self) -> tuple[str, ...]:
        return self.loaded.dependencies if self.loaded is not None else ()

    @property
    def reason(self) -> str:
        """The failure of its last version that has one, and did not go because of another's; else the model's own."""
        failures = [life.failure for life in self.versions.values() if life.failure not in ("", UNLOADED_REASON)]
        return failures[-1] if failures else self.failure

    def is_current(self, polled: PolledModel) -> bool:
        """Whether the model already serves exactly what was found."""
        loaded = self.loaded
        if polled.override is not None or loaded is None or self.retries or not self.ready_models:
            return False
        if loaded.stamp is None or polled.stamp is None:
            return False
        return loaded.folder == polled.folder and loaded.stamp.is_same_as(polled.stamp)

    @property
    def is_idle(self) -> bool:
        """Whether nothing of the model is loaded, loading or ending."""
        return all(life.state == UNAVAILABLE for life in self.versions.values())

    def forget(self) -> None:
        """Drops what the last load brought along."""
        self.loaded = None
        self.retries = False
        self.failed = None
        self.refused = None
        self.failure = ""
        self.is_invalid = False
