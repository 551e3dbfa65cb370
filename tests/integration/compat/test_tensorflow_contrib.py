"""Model files written for TensorFlow 1, as the generator for Inferentia writes them, with the release of today."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trireme.backends.python.compat import import_hook


@pytest.fixture(scope="module")
def tensorflow() -> Any:
    import_hook.install()
    sys.modules.pop("tensorflow", None)
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def saved_model(tensorflow: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    module = tensorflow.Module()
    spec = tensorflow.TensorSpec([None, 4], tensorflow.float32, name="x")
    module.double = tensorflow.function(
        lambda x: {"y": x * 2.0, "total": tensorflow.reduce_sum(x, axis=1)}, input_signature=[spec]
    )
    folder = tmp_path_factory.mktemp("saved")
    tensorflow.saved_model.save(module, str(folder), signatures=module.double)
    return folder


def test_a_predictor_takes_keys_and_tensor_names_and_answers_by_both(tensorflow: Any, saved_model: Path) -> None:
    predict = tensorflow.contrib.predictor.from_saved_model(str(saved_model))
    given = np.arange(8, dtype=np.float32).reshape(2, 4)
    for name in ("x", "serving_default_x:0"):
        found = predict({name: given})
        np.testing.assert_array_equal(found["y"], 2 * given)
        np.testing.assert_array_equal(found["total"], given.sum(axis=1))
        assert sum(":" in key for key in found) == 2
    with pytest.raises(ValueError, match="the model has no inputs q; it has x"):
        predict({"q": given})
