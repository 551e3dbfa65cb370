"""SavedModels: TensorFlow's own results, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from served_repository import Served, load_error, place, serve

SAVE = """
import sys
import tensorflow as tf

class Model(tf.Module):
    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 3], tf.float32, name="x"),
            tf.TensorSpec([None, 1], tf.string, name="word"),
        ]
    )
    def serve(self, x, word):
        return {"twice": x * 2, "shout": tf.strings.join([word, "!"])}

model = Model()
tf.saved_model.save(model, sys.argv[1], signatures={"serving_default": model.serve})
"""


def test_a_saved_model_alone_is_served_with_what_its_signature_says(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed here")
    subprocess.run([sys.executable, "-c", SAVE, place(tmp_path, "saved") / "model.savedmodel"], check=True)

    async def scenario(served: Served) -> None:
        assert served.config("saved").max_batch_size == 4
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        outputs = await served.ask("saved", x=x, word=np.array([[b"a"], [b"\xff"]], dtype=np.object_))
        np.testing.assert_array_equal(outputs["twice"], x * 2)
        assert outputs["shout"].tolist() == [[b"a!"], [b"\xff!"]]

    serve(tmp_path, scenario)


def test_a_graphdef_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (place(tmp_path, "old") / "model.graphdef").touch()

    async def scenario(served: Served) -> None:
        assert "convert it to a SavedModel" in await load_error(served, "old")

    serve(tmp_path, scenario, models=())
