"""Model deployments of Oracle Cloud: `/predict` and `/health` on the HTTP port."""

from __future__ import annotations

from dataclasses import dataclass

from trireme.core.errors import InvalidArgumentError
from trireme.frontends.http.head import RequestHead
from trireme.frontends.http.platforms.translation import header, model_path

_READY = "/v2/health/ready"
_ACTIONS = ("infer", "generate", "generate_stream")


@dataclass(frozen=True, slots=True)
class OciTranslation:
    """What the variables of the deployment say."""

    predict_endpoint: str = ""
    """`MODEL_DEPLOY_PREDICT_ENDPOINT`: the path that predictions go to."""
    health_endpoint: str = ""
    """`MODEL_DEPLOY_HEALTH_ENDPOINT`."""
    is_triton: bool = False
    """`CONTAINER_TYPE=TRITON`: the headers `model_name` and `model_version` choose the model."""

    def __call__(self, head: RequestHead) -> None:
        """Turns the two paths into those that they stand for."""
        if head.path == "/health":
            head.path = self.health_endpoint if self.health_endpoint not in ("", "/health") else _READY
        elif head.path == "/predict":
            head.path = self._predicted(head)

    def _predicted(self, head: RequestHead) -> str:
        endpoint = "" if self.predict_endpoint == "/predict" else self.predict_endpoint
        name = header(head, "model_name")
        if name and (self.is_triton or not endpoint):
            action = endpoint.rpartition("/")[2]
            return model_path(name, header(head, "model_version"), action if action in _ACTIONS else "infer")
        if endpoint:
            return endpoint
        raise InvalidArgumentError(
            "/predict needs the header 'model_name', or MODEL_DEPLOY_PREDICT_ENDPOINT in the server's environment, to "
            "know which model is meant"
        )
