"""Endpoints of Amazon SageMaker: `/ping` and `/invocations` on a port of their own."""

from __future__ import annotations

from dataclasses import dataclass

from trireme.core.errors import InvalidArgumentError
from trireme.frontends.http.head import RequestHead
from trireme.frontends.http.platforms.translation import model_path, read_binary_type

BINARY_TYPE = "application/vnd.sagemaker-triton.binary+json"
INFERENCE_TYPES = ("infer", "generate", "generate_stream")
PING_MODES = ("ready", "live")


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
        """Turns the two paths into those that they stand for, and refuses every other one."""
        read_binary_type(head, BINARY_TYPE)
        if head.path == "/ping":
            head.path = f"/v2/health/{self.ping_mode}"
        elif head.path == "/invocations":
            if not self.model_name:
                raise InvalidArgumentError(
                    "there is not exactly one model; set SAGEMAKER_TRITON_DEFAULT_MODEL_NAME to the one that is meant"
                )
            head.path = model_path(self.model_name, action=self.inference_type)
        else:
            raise InvalidArgumentError(f"SageMaker's port serves /ping and /invocations, not {head.path}")
