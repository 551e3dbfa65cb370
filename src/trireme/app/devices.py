"""The accelerators at the start of the server: what is said of them, and who reads them."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from trireme.config.options.server import ServerOptions
from trireme.devices.inventory import Inventory
from trireme.observe.metrics import MetricsRegistry

if TYPE_CHECKING:
    from trireme.devices.readings import DeviceReader

log = logging.getLogger(__name__)

CPU_ONLY_VARIABLE = "TRITON_SERVER_CPU_ONLY"


def start_reader(options: ServerOptions, inventory: Inventory, metrics: MetricsRegistry) -> DeviceReader | None:
    """Reads the accelerators from now on and puts them on the metrics page; None where there is nothing to read."""
    devices = inventory.accelerators
    for device in devices:
        log.info("device %s: %s%s", device.label, device.name, " (simulated)" if device.is_simulated else "")
    if not (devices and options.allow_metrics and options.allow_gpu_metrics) or CPU_ONLY_VARIABLE in os.environ:
        return None
    # Imported late: most machines have nothing to read, and start sooner without.
    from trireme.devices.readings import DeviceReader
    from trireme.observe.device_metrics import DeviceMetrics

    reader = DeviceReader(devices, options.metrics_interval_ms / 1000)
    reader.start()
    metrics.devices = DeviceMetrics(reader.readings)
    return reader
