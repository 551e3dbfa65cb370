"""Names of the parameters of a model's configuration that the server reads, whatever the backend: a backend that tells
of those that nobody reads leaves them out, and what is nearly one of them is misspelt."""

from __future__ import annotations

from typing import Final

SERVER_PARAMETERS: Final = frozenset(
    {
        "EXECUTION_ENV_PATH",
        "FORCE_CPU_ONLY_INPUT_TENSORS",
        "TRITON_BATCH_STRATEGY_PATH",
        "compat",
        "device",
        "image_input",
        "max_concurrency",
        "strict_outputs",
        "trireme_load_timeout",
        "trireme_memory_bytes",
        "trireme_pin",
    }
)
"""Written out: workers read them too, and import nothing of where each is acted on."""
