"""Checks of the normalised instance groups against the devices of the machine."""

from __future__ import annotations

from trireme.config.autofill import ENSEMBLE_PLATFORM
from trireme.config.message import ConfigMessage, enum_name
from trireme.core.errors import InvalidArgumentError
from trireme.proto import model_config_pb2

_MIN_COMPUTE_CAPABILITY = "6.000000"


def validate_instance_groups(message: ConfigMessage, gpu_count: int) -> None:
    if message.platform == ENSEMBLE_PLATFORM:
        return
    if not message.instance_group:
        raise InvalidArgumentError(f"must specify one or more 'instance group's for {message.name}")
    for group in message.instance_group:
        _validate_group(group, message, gpu_count)
    if all(group.passive for group in message.instance_group):
        raise InvalidArgumentError(
            f"all instance groups of model {message.name} are passive, so that no instance would take its requests; "
            "at least one group must be without 'passive'"
        )


def _validate_group(group: model_config_pb2.ModelInstanceGroup, message: ConfigMessage, gpu_count: int) -> None:
    subject = f"instance group {group.name} of model {message.name}"
    kind = enum_name(group, "kind")
    if kind == "KIND_GPU":
        _validate_gpus(group, subject, gpu_count)
    elif group.gpus:
        raise InvalidArgumentError(f"{subject} has kind {kind} but specifies one or more GPUs")
    if group.profile:
        _validate_profiles(group, subject, message)


def _validate_gpus(group: model_config_pb2.ModelInstanceGroup, subject: str, gpu_count: int) -> None:
    if not group.gpus:
        problem = "no GPUs are available" if gpu_count == 0 else "specifies no GPUs"
        raise InvalidArgumentError(f"{subject} has kind KIND_GPU but {problem}")
    for gpu in group.gpus:
        if not 0 <= gpu < gpu_count:
            available = ", ".join(str(index) for index in range(gpu_count))
            raise InvalidArgumentError(
                f"{subject} specifies invalid or unsupported gpu id {gpu}. GPUs with at least the minimum required "
                f"CUDA compute compatibility of {_MIN_COMPUTE_CAPABILITY} are: {available}"
            )


def _validate_profiles(group: model_config_pb2.ModelInstanceGroup, subject: str, message: ConfigMessage) -> None:
    if message.backend != "tensorrt":
        raise InvalidArgumentError(
            f"{subject} and platform {message.platform}specifies profile field which is only supported for TensorRT "
            "models"
        )
    for profile in group.profile:
        if not (profile.isascii() and profile.isdigit()):
            raise InvalidArgumentError(
                f"{subject} and platform {message.platform} specifies invalid profile {profile}. The field should "
                "contain the string representation of a non-negative integer."
            )
