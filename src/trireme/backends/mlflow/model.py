"""The mlflow backend: a folder with an MLmodel file, as MLflow saves it, with or without a version folder around it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from trireme.backends.classic.model import ClassicModel, warn_of_gpu
from trireme.backends.classic.predictor import Predictor
from trireme.backends.compiled.model_load import ModelLoadError, broken_file, require
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.mlflow.flavors import load_flavor
from trireme.backends.mlflow.signature import read_signature
from trireme.backends.python.pb_utils import runtime as pb_runtime

_FILE_NAME = "MLmodel"


class TritonPythonModel(ClassicModel):
    """One instance of a model."""

    backend = "mlflow"

    @classmethod
    def load(cls, config: Mapping[str, Any], parameters: Parameters, gpu: int | None) -> Predictor:
        """Reads the MLmodel file, and the files that it names."""
        warn_of_gpu(cls.backend, config["name"], gpu)
        path = _path(config)
        yaml = require("yaml", "mlflow")
        try:
            with open(path, encoding="utf-8") as file:
                content = yaml.safe_load(file)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise broken_file(path, "an MLmodel file", error) from error
        except RecursionError:
            raise broken_file(path, "an MLmodel file", ValueError("it is nested too deeply")) from None
        if not isinstance(content, dict):
            raise broken_file(path, "an MLmodel file", ValueError("it is no mapping"))
        try:
            signature = read_signature(content, path)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise broken_file(path, "an MLmodel file with a signature", error) from error
        return signature.applied_to(load_flavor(os.path.dirname(path), content))


def _path(config: Mapping[str, Any]) -> str:
    """In the version folder, in the one folder inside it, or in the model's folder where it has no versions."""
    version = pb_runtime.current().model_dir
    places = [version]
    if os.path.isdir(version):
        places += sorted(entry.path for entry in os.scandir(version) if entry.is_dir())
    else:
        places.append(os.path.dirname(version))
    for place in places:
        path = os.path.join(place, _FILE_NAME)
        if os.path.isfile(path):
            return path
    raise ModelLoadError(
        f"unable to find '{os.path.join(version, _FILE_NAME)}' for model '{config['name']}'; put the folder that "
        "MLflow saved there, or into the repository as it is"
    )
