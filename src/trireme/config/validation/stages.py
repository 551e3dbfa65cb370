"""The two stages of checking a configuration: when the model folder is read, and when the model is loaded."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from trireme.config.autofill import ENSEMBLE_PLATFORM, MODEL_FORMATS
from trireme.config.message import ConfigMessage, enum_name
from trireme.config.picture_parameters import INPUT as PICTURE_INPUT
from trireme.config.picture_parameters import picture_config
from trireme.config.validation.batching import dynamic_batching_problems
from trireme.config.validation.ensemble import ensemble_problems
from trireme.config.validation.instances import instance_group_problems
from trireme.config.validation.problem import Problem, raise_first
from trireme.config.validation.sequence import sequence_batching_problems, state_problems
from trireme.config.validation.tensors import tensor_problems
from trireme.core.datatype import from_config
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
    raise_first(poll_problems(message, includes_io=includes_io))


def validate_load(message: ConfigMessage, gpu_count: int) -> None:
    """Checks what only counts once auto-complete is done and the instance groups are normalised."""
    raise_first(load_problems(message, gpu_count))


def poll_problems(message: ConfigMessage, *, includes_io: bool) -> Iterator[Problem]:
    yield from _identity_problems(message)
    if message.max_batch_size < 0:
        yield Problem(
            f"'max_batch_size' must be non-negative value for {message.name}",
            "max_batch_size",
            "0 is a model that does not batch",
        )
    if message.version_policy.WhichOneof("policy_choice") is None:
        yield Problem(f"must specify 'version policy' for {message.name}", "version_policy")
    yield from dynamic_batching_problems(message)
    yield from sequence_batching_problems(message)
    yield from ensemble_problems(message)
    if message.response_cache.enable and message.model_transaction_policy.decoupled:
        yield Problem(
            f"Response Cache does not currently support model {message.name} with 'decoupled' transaction policy. "
            "Please disable the response cache.",
            "response_cache",
        )
    yield from _metric_problems(message)
    if includes_io:
        yield from tensor_problems(message)


def load_problems(message: ConfigMessage, gpu_count: int) -> Iterator[Problem]:
    yield from poll_problems(message, includes_io=True)
    yield from machine_problems(message, gpu_count)
    yield from picture_problems(message)


def machine_problems(message: ConfigMessage, gpu_count: int) -> Iterator[Problem]:
    """Of states and instance groups, which no model completes."""
    yield from state_problems(message)
    yield from instance_group_problems(message, gpu_count)


def picture_problems(message: ConfigMessage) -> Iterator[Problem]:
    """Of the parameters `image_...`, against inputs that are complete."""
    forms = [(entry.name, from_config(enum_name(entry, "data_type")), tuple(entry.dims)) for entry in message.input]
    parameters = {key: value.string_value for key, value in message.parameters.items()}
    try:
        picture_config(message.name, forms, parameters, message.max_batch_size > 0)
    except InvalidArgumentError as error:
        yield Problem(error.message, f"parameters['{PICTURE_INPUT}']")


def _identity_problems(message: ConfigMessage) -> Iterator[Problem]:
    if not message.name:
        yield Problem("model configuration must specify 'name'")
    if message.platform == ENSEMBLE_PLATFORM:
        if message.backend:
            yield Problem(
                f"Ensemble model '{message.name}' must have platform type '{ENSEMBLE_PLATFORM}' and empty backend type",
                "backend",
            )
        return
    if not message.backend:
        yield Problem(
            f"unexpected platform type '{message.platform}' for {message.name}", "platform", "write the backend instead"
        )
        return
    platforms = _PLATFORMS.get(message.backend)
    if platforms is not None and message.platform not in platforms:
        yield Problem(
            f"unexpected 'platform' and 'backend' pair, got:{message.platform}, {message.backend}",
            "platform",
            f"leave platform out; the {message.backend} backend has {', '.join(sorted(platforms))}",
        )


def _metric_problems(message: ConfigMessage) -> Iterator[Problem]:
    for index, control in enumerate(message.model_metrics.metric_control):
        place = f"model_metrics.metric_control[{index}]"
        family = control.metric_identifier.family
        if not control.HasField("metric_identifier"):
            yield Problem("metric control must specify 'metric_identifier'", place)
        elif not family:
            yield Problem("metric identifier must specify non-empty 'family'", place)
        if not control.HasField("histogram_options"):
            yield Problem("metric control must specify 'histogram_options'", place)
        elif not control.histogram_options.buckets:
            yield Problem("histogram options must specify non-empty 'buckets'", place)
        if family and family not in HISTOGRAM_FAMILIES:
            log.warning("metric family '%s' in the model_metrics of '%s' is not known: ignored", family, message.name)
