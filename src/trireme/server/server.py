"""The façade that all front ends share: everything this server can do."""

from __future__ import annotations

from collections.abc import Callable

from trireme.config.options.trace import TraceSettings
from trireme.observe.logs import LogSettings
from trireme.observe.metrics import MetricsRegistry
from trireme.registry.registry import ModelRegistry
from trireme.server.call import Calls
from trireme.server.health import Health
from trireme.server.inference import Inference
from trireme.server.metadata import TRITON_LEVEL, Metadata
from trireme.server.model_control import ModelControl
from trireme.server.pictures.decoder import PictureDecoder
from trireme.server.recording.recorder import Recorder
from trireme.server.settings import Settings
from trireme.server.shared_memory import SharedMemory
from trireme.server.statistics import Statistics
from trireme.server.text_models.listing import TextModels
from trireme.server.trace.settings import TraceSettingsStore
from trireme.server.trace.tracing import Tracing


class InferenceServer:
    """Composes the parts; all of them are used on the event loop's thread."""

    def __init__(
        self,
        registry: ModelRegistry,
        metrics: MetricsRegistry,
        log_settings: LogSettings,
        *,
        name: str = "triton",
        version: str = TRITON_LEVEL,
        trace_start: TraceSettings | None = None,
        shared_memory: SharedMemory | None = None,
        max_queue_size: int = 0,
        allows_recording: bool = False,
    ) -> None:
        self.registry = registry
        self.is_exiting = False
        self.on_exit: Callable[[], None] | None = None
        """Called when new inference is refused from now on."""
        trace_settings = TraceSettingsStore(trace_start or TraceSettings())
        self.tracing = Tracing(trace_settings)
        self.shared_memory = shared_memory or SharedMemory()
        self.inference = Inference(
            registry, tracing=self.tracing, shared_memory=self.shared_memory, max_queue_size=max_queue_size
        )
        self.calls = Calls(self.inference, self.tracing, self.shared_memory)
        self.recorder = Recorder(self.inference, self.shared_memory, allows_recording)
        self.recorder.switch = self.calls
        metrics.others.append(self.recorder)
        self.health = Health(registry)
        self.metadata = Metadata(registry, self.health, name, version)
        self.text_models = TextModels(registry, self.health)
        self.statistics = Statistics(registry, self.health, metrics)
        self.model_control = ModelControl(registry, self.health)
        self.pictures = PictureDecoder()
        self.settings = Settings(registry, log_settings, trace_settings)
        registry.inference = self.inference

    def mark_started(self) -> None:
        """The start-up models are dealt with: readiness may turn true."""
        self.health.mark_started()

    def begin_exit(self) -> None:
        """Readiness turns false and new inference is refused; what was begun is carried on."""
        self.is_exiting = True
        self.health.begin_exit()
        self.inference.begin_exit()
        if self.on_exit is not None:
            self.on_exit()
