"""Stands in for Oracle's SDK while a page is followed: as much of it as a deployment takes, refusing what the real one
would refuse, and with the page's server in place of the cloud."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from trireme.config.options.parser import parse_options

_FIELDS = {
    "OcirModelDeploymentEnvironmentConfigurationDetails": {
        "environment_configuration_type",
        "image",
        "server_port",
        "health_check_port",
        "cmd",
        "environment_variables",
    },
    "InstanceConfiguration": {"instance_shape_name"},
    "FixedSizeScalingPolicy": {"instance_count"},
    "ModelConfigurationDetails": {"model_id", "instance_configuration", "scaling_policy"},
    "SingleModelDeploymentConfigurationDetails": {
        "deployment_type",
        "model_configuration_details",
        "environment_configuration_details",
    },
    "CreateModelDeploymentDetails": {
        "project_id",
        "compartment_id",
        "display_name",
        "model_deployment_configuration_details",
    },
}
"""Names of the real models, and those of their fields that deployments of ours use."""


class _Models:
    def __getattr__(self, name: str) -> Any:
        fields = _FIELDS[name]

        def make(**values: Any) -> SimpleNamespace:
            assert set(values) <= fields, f"{name} has no {set(values) - fields}"
            return SimpleNamespace(**values)

        return make


class _Client:
    def __init__(self, config: dict[str, str]) -> None:
        pass

    def create_model_deployment(self, details: SimpleNamespace) -> None:
        """Holds what the container is to run against the server's own reading of flags."""
        environment = details.model_deployment_configuration_details.environment_configuration_details
        program, *flags = environment.cmd
        assert program == "tritonserver"
        parse_options(flags, {})
        assert environment.server_port == environment.health_check_port


class _Signer:
    """Signs nothing: sends the request to the page's server, with the path behind the deployment's own."""

    @classmethod
    def from_config(cls, config: dict[str, str]) -> _Signer:
        return cls()

    def __call__(self, request: Any) -> Any:
        request.url = f"http://127.0.0.1:{os.environ['TRIREME_HTTP_PORT']}/{request.url.rpartition('/')[2]}"
        return request


data_science = SimpleNamespace(models=_Models(), DataScienceClient=_Client)
config = SimpleNamespace(from_file=dict[str, str])
signer = SimpleNamespace(Signer=_Signer)
