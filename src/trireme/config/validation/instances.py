"""Checks of the normalised instance groups against the devices of the machine."""

from __future__ import annotations

from collections.abc import Iterator

from trireme.config.autofill import ENSEMBLE_PLATFORM
from trireme.config.device_parameter import device_choice
from trireme.config.message import ConfigMessage, enum_name
from trireme.config.validation.problem import Problem
from trireme.proto import model_config_pb2

_MIN_COMPUTE_CAPABILITY = "6.000000"


def instance_group_problems(message: ConfigMessage, gpu_count: int) -> Iterator[Problem]:
    if message.platform == ENSEMBLE_PLATFORM:
        return
    if not message.instance_group:
        yield Problem(f"must specify one or more 'instance group's for {message.name}")
        return
    for index, group in enumerate(message.instance_group):
        yield from _group_problems(group, f"instance_group[{index}]", message, gpu_count)
    if all(group.passive for group in message.instance_group):
        yield Problem(
            f"all instance groups of model {message.name} are passive, so that no instance would take its requests; "
            "at least one group must be without 'passive'",
            "instance_group",
        )


def _group_problems(
    group: model_config_pb2.ModelInstanceGroup, place: str, message: ConfigMessage, gpu_count: int
) -> Iterator[Problem]:
    subject = f"instance group {group.name} of model {message.name}"
    kind = enum_name(group, "kind")
    choice = device_choice(message)
    if kind == "KIND_GPU" and choice is not None and choice.kind == "cuda" and gpu_count == 0:
        yield Problem(
            f"parameter 'device' of model {message.name} asks for a GPU but no GPUs are available",
            "parameters",
            "write cpu, or auto, which takes a GPU where there is one",
        )
    elif kind == "KIND_GPU":
        yield from _gpu_problems(group, place, subject, gpu_count)
    elif group.gpus:
        yield Problem(
            f"{subject} has kind {kind} but specifies one or more GPUs",
            f"{place}.gpus",
            "remove gpus, or write kind: KIND_GPU on a machine that has them",
        )
    if group.profile:
        yield from _profile_problems(group, place, subject, message)


def _gpu_problems(
    group: model_config_pb2.ModelInstanceGroup, place: str, subject: str, gpu_count: int
) -> Iterator[Problem]:
    if not group.gpus:
        problem = "no GPUs are available" if gpu_count == 0 else "specifies no GPUs"
        yield Problem(
            f"{subject} has kind KIND_GPU but {problem}",
            f"{place}.kind",
            "write kind: KIND_CPU, or KIND_AUTO, which takes a GPU where there is one",
        )
    for gpu in group.gpus:
        if not 0 <= gpu < gpu_count:
            available = ", ".join(str(index) for index in range(gpu_count))
            yield Problem(
                f"{subject} specifies invalid or unsupported gpu id {gpu}. GPUs with at least the minimum required "
                f"CUDA compute compatibility of {_MIN_COMPUTE_CAPABILITY} are: {available}",
                f"{place}.gpus",
                f"there {'is' if gpu_count == 1 else 'are'} {gpu_count or 'no'} GPU{'' if gpu_count == 1 else 's'} "
                "here: leave gpus out to use what there is",
            )


def _profile_problems(
    group: model_config_pb2.ModelInstanceGroup, place: str, subject: str, message: ConfigMessage
) -> Iterator[Problem]:
    if message.backend != "tensorrt":
        yield Problem(
            f"{subject} and platform {message.platform}specifies profile field which is only supported for TensorRT "
            "models",
            f"{place}.profile",
            "remove profile",
        )
        return
    for profile in group.profile:
        if not (profile.isascii() and profile.isdigit()):
            yield Problem(
                f"{subject} and platform {message.platform} specifies invalid profile {profile}. The field should "
                "contain the string representation of a non-negative integer.",
                f"{place}.profile",
            )
