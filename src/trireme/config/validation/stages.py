"""The two stages of checking a configuration: when the model folder is read, and when the model is loaded."""

from __future__ import annotations

import logging

from trireme.config.autofill import ENSEMBLE_PLATFORM, MODEL_FORMATS
from trireme.config.message import ConfigMessage
from trireme.config.validation.batching import validate_dynamic_batching
from trireme.config.validation.ensemble import validate_ensemble
from trireme.config.validation.instances import validate_instance_groups
from trireme.config.validation.sequence import validate_sequence_batching, validate_states
from trireme.config.validation.tensors import validate_io
from trireme.core.errors import InvalidArgumentError

log = logging.getLogger(__name__)

HISTOGRAM_FAMILIES = frozenset({"nv_inference_first_response_histogram_ms"})
"""The metrics whose buckets a model may choose."""

_PLATFORMS = {
    backend: frozenset(known.platform for known in MODEL_FORMATS if known.backend == backend)
    for backend in ("tensorflow", "tensorrt", "onnxruntime", "pytorch")
}


def validate_poll(message: ConfigMessage, *, includes_io: bool) -> None:
    """Checks a normalised message as read; `includes_io` when no auto-complete will still change its tensors.

    Raises InvalidArgumentError with the first thing found wrong.
    """
    _validate_identity(message)
    if message.max_batch_size < 0:
        raise InvalidArgumentError(f"'max_batch_size' must be non-negative value for {message.name}")
    if message.version_policy.WhichOneof("policy_choice") is None:
        raise InvalidArgumentError(f"must specify 'version policy' for {message.name}")
    validate_dynamic_batching(message)
    validate_sequence_batching(message)
    validate_ensemble(message)
    if message.response_cache.enable and message.model_transaction_policy.decoupled:
        raise InvalidArgumentError(
            f"Response Cache does not currently support model {message.name} with 'decoupled' transaction policy. "
            "Please disable the response cache."
        )
    _validate_metrics(message)
    if includes_io:
        validate_io(message)


def validate_load(message: ConfigMessage, gpu_count: int) -> None:
    """Checks what only counts once auto-complete is done and the instance groups are normalised."""
    validate_poll(message, includes_io=True)
    validate_states(message)
    validate_instance_groups(message, gpu_count)


def _validate_identity(message: ConfigMessage) -> None:
    if not message.name:
        raise InvalidArgumentError("model configuration must specify 'name'")
    if message.platform == ENSEMBLE_PLATFORM:
        if message.backend:
            raise InvalidArgumentError(
                f"Ensemble model '{message.name}' must have platform type '{ENSEMBLE_PLATFORM}' and empty backend type"
            )
        return
    if not message.backend:
        raise InvalidArgumentError(f"unexpected platform type '{message.platform}' for {message.name}")
    platforms = _PLATFORMS.get(message.backend)
    if platforms is not None and message.platform not in platforms:
        raise InvalidArgumentError(
            f"unexpected 'platform' and 'backend' pair, got:{message.platform}, {message.backend}"
        )


def _validate_metrics(message: ConfigMessage) -> None:
    for control in message.model_metrics.metric_control:
        if not control.HasField("metric_identifier"):
            raise InvalidArgumentError("metric control must specify 'metric_identifier'")
        family = control.metric_identifier.family
        if not family:
            raise InvalidArgumentError("metric identifier must specify non-empty 'family'")
        if not control.HasField("histogram_options"):
            raise InvalidArgumentError("metric control must specify 'histogram_options'")
        if not control.histogram_options.buckets:
            raise InvalidArgumentError("histogram options must specify non-empty 'buckets'")
        if family not in HISTOGRAM_FAMILIES:
            log.warning("metric family '%s' in the model_metrics of '%s' is not known: ignored", family, message.name)
