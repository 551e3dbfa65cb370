"""Endpoints of Amazon SageMaker: `/ping`, `/invocations` and those of several models, on a port of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from trireme.core.errors import InvalidArgumentError
from trireme.frontends.http.head import RequestHead
from trireme.frontends.http.platforms.translation import header, model_path, read_binary_type

BINARY_TYPE = "application/vnd.sagemaker-triton.binary+json"
INFERENCE_TYPES = ("infer", "generate", "generate_stream")
PING_MODES = ("ready", "live")
_MODELS = re.compile("/models(?:/[^/]+)?")
_INVOKE = re.compile("/models/([^/]+)/invoke")


@dataclass(frozen=True, slots=True)
class SagemakerTranslation:
    """What the variables of the endpoint say."""

    model_name: str
    """`SAGEMAKER_TRITON_DEFAULT_MODEL_NAME`, or the only model that is loaded; "" where there is neither."""
    inference_type: str = "infer"
    """`SAGEMAKER_TRITON_INFERENCE_TYPE`."""
    ping_mode: str = "ready"
    """`SAGEMAKER_TRITON_PING_MODE`."""

    def __call__(self, head: RequestHead) -> None:
        """Turns the paths of requests to models into those that they stand for, and refuses what is none of
        SageMaker's."""
        read_binary_type(head, BINARY_TYPE)
        if head.path == "/ping":
            head.path = f"/v2/health/{self.ping_mode}"
        elif head.path == "/invocations":
            if not self.model_name:
                raise InvalidArgumentError(
                    "there is not exactly one model; set SAGEMAKER_TRITON_DEFAULT_MODEL_NAME to the one that is meant"
                )
            head.path = model_path(self.model_name, action=self.inference_type)
        elif (found := _INVOKE.fullmatch(head.path)) is not None:
            head.tells_memory = True
            head.path = model_path(loaded_name(head, unquote(found[1])))
        elif not _MODELS.fullmatch(head.path):
            raise InvalidArgumentError(f"SageMaker's port serves /ping, /invocations and /models, not {head.path}")


def loaded_name(head: RequestHead, name: str) -> str:
    """What a model of several is called here: as its archive, where the platform tells that and it can be a name."""
    target = header(head, "x-amzn-sagemaker-target-model")
    return target if target and "/" not in target else name
