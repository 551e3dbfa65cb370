"""The fil backend: forests of XGBoost, LightGBM and others, predicted by Treelite on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trireme.backends.classic.model import ClassicModel, warn_of_gpu
from trireme.backends.classic.predictor import Predictor
from trireme.backends.compiled.model_load import ModelLoadError, require, thread_share
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.fil.decisions import decision
from trireme.backends.fil.forest_file import read_forest

_INPUT, _OUTPUT, _SHAPLEY = "input__0", "output__0", "treeshap_output"
_OF_GPUS = "it is about GPUs, and the forest is computed on the CPU"


class TritonPythonModel(ClassicModel):
    """One instance of a forest."""

    backend = "fil"
    without_effect = {
        "algo": _OF_GPUS,
        "blocks_per_sm": _OF_GPUS,
        "chunk_size": _OF_GPUS,
        "layout": "there is one way to keep a forest in memory",
        "storage_type": _OF_GPUS,
        "threads_per_tree": _OF_GPUS,
        "transfer_threshold": _OF_GPUS,
        "use_experimental_optimizations": "there is one way to compute a forest",
    }

    @classmethod
    def load(cls, config: Mapping[str, Any], parameters: Parameters, gpu: int | None) -> Predictor:
        """Reads the forest."""
        warn_of_gpu(cls.backend, config["name"], gpu)
        if any(entry["name"] == _SHAPLEY for entry in config.get("output") or ()):
            raise ModelLoadError(
                f"model '{config['name']}' has the output '{_SHAPLEY}', which the fil backend has not; the backends "
                "xgboost and lightgbm have it as 'contributions'"
            )
        treelite = require("treelite", "fil")
        forest = read_forest(treelite, config, parameters)
        decide = decision(forest, config, parameters)
        threads = parameters.whole("cpu_nthread", least=1) or thread_share()

        def predict(table: Any) -> Any:
            rows = np.ascontiguousarray(table, dtype=forest.input_type)
            scores = treelite.gtil.predict(forest, rows, nthread=threads)
            return decide(scores.reshape(len(rows), -1)).astype(np.float32)

        return Predictor(
            methods={_OUTPUT: predict},
            usual_outputs=(_OUTPUT,),
            datatype="FP32",
            column_count=forest.num_feature,
            input_name=_INPUT,
        )
