"""Folders that MLflow saved, served as they are: by the library of their flavor, with the inputs of their signature."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_repository import Served, load_error, place, serve

pytest.importorskip("yaml")
TABLE = np.random.default_rng(2).normal(size=(90, 3))
CLASSES = (TABLE[:, 0] > 0).astype(np.int64)
WORDS = np.where(TABLE[:, 1] > 0, "sail", "oar")


def mlflow_folder(folder: Path, flavors: Mapping[str, Any], inputs: list[dict[str, Any]] | None = None) -> Path:
    """With the files that MLflow writes beside a model; the model's own is left to the caller."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["artifact_path: model", "flavors:"]
    for name, fields in flavors.items():
        lines += [f"  {name}:", *(f"    {key}: {json.dumps(value)}" for key, value in fields.items())]
    lines += ["mlflow_version: 3.1.0", "model_uuid: 6f2b"]
    if inputs is not None:
        text = json.dumps(inputs).replace("'", "''")
        lines += ["signature:", f"  inputs: '{text}'", "  outputs: null", "  params: null"]
    (folder / "MLmodel").write_text("\n".join(lines) + "\n")
    (folder / "requirements.txt").write_text("mlflow==3.1.0\nno-such-package-anywhere==1.0\n")
    (folder / "conda.yaml").write_text("name: mlflow-env\n")
    return folder


def sklearn_flavors(file_name: str = "model.pkl") -> dict[str, Any]:
    return {
        "python_function": {"loader_module": "mlflow.sklearn", "model_path": file_name},
        "sklearn": {"pickled_model": file_name, "serialization_format": "cloudpickle", "sklearn_version": "1.5.0"},
    }


def test_a_folder_of_mlflow_is_served_as_it_is_and_inside_a_version(tmp_path: Path) -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    model = linear.LogisticRegression().fit(TABLE, CLASSES)
    tensor = [{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 3]}}]
    for folder, inputs in ((tmp_path / "plain", None), (tmp_path / "inside" / "1", tensor)):
        (mlflow_folder(folder, sklearn_flavors(), inputs) / "model.pkl").write_bytes(pickle.dumps(model))

    async def scenario(served: Served) -> None:
        assert served.config("plain").backend == "mlflow"
        outputs = await served.ask("plain", input=TABLE[:4])
        np.testing.assert_array_equal(outputs["predict"].ravel(), model.predict(TABLE[:4]))
        np.testing.assert_array_equal(outputs["predict_proba"], model.predict_proba(TABLE[:4]))
        outputs = await served.ask("inside", input=TABLE[:4].astype(np.float32))
        np.testing.assert_array_equal(outputs["predict"].ravel(), model.predict(TABLE[:4]))

    serve(tmp_path, scenario)


def test_the_columns_of_a_signature_are_inputs(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    compose = pytest.importorskip("sklearn.compose")
    linear = pytest.importorskip("sklearn.linear_model")
    pipeline = pytest.importorskip("sklearn.pipeline")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    frame = pandas.DataFrame({"speed": TABLE[:, 0], "means": WORDS, "crew": np.arange(90)})
    words = preprocessing.OneHotEncoder(handle_unknown="ignore")
    steps = compose.ColumnTransformer([("means", words, ["means"])], remainder="passthrough")
    model = pipeline.make_pipeline(steps, linear.LinearRegression()).fit(frame, TABLE[:, 2])
    inputs = [
        {"type": "double", "name": "speed", "required": True},
        {"type": "string", "name": "means", "required": True},
        {"type": "long", "name": "crew", "required": True},
    ]
    (mlflow_folder(tmp_path / "ships", sklearn_flavors(), inputs) / "model.pkl").write_bytes(pickle.dumps(model))

    async def scenario(served: Served) -> None:
        declared = [(entry.name, list(entry.dims)) for entry in served.config("ships").input]
        assert declared == [("speed", [1]), ("means", [1]), ("crew", [1])]
        means = np.array([[word.encode()] for word in WORDS[:5]], dtype=np.object_)
        crew = np.arange(5, dtype=np.int64).reshape(-1, 1)
        outputs = await served.ask("ships", speed=TABLE[:5, :1], means=means, crew=crew)
        np.testing.assert_array_equal(outputs["predict"].ravel(), model.predict(frame[:5]))

    serve(tmp_path, scenario)


def test_boosters_of_mlflow_are_read_by_their_libraries(tmp_path: Path) -> None:
    xgb, lgb = pytest.importorskip("xgboost"), pytest.importorskip("lightgbm")
    pytest.importorskip("sklearn")
    classifier = xgb.XGBClassifier(n_estimators=4, max_depth=2).fit(TABLE, CLASSES)
    flavor = {"data": "model.xgb", "model_class": "xgboost.sklearn.XGBClassifier", "model_format": "xgb"}
    folder = mlflow_folder(tmp_path / "wrapped", {"python_function": {}, "xgboost": flavor})
    classifier.save_model(folder / "model.ubj")
    (folder / "model.ubj").rename(folder / "model.xgb")
    flavor = {"data": "model.ubj", "model_class": "xgboost.core.Booster", "model_format": "ubj"}
    folder = mlflow_folder(tmp_path / "booster", {"xgboost": flavor})
    classifier.get_booster().save_model(folder / "model.ubj")
    light = lgb.train({"objective": "binary", "verbose": -1}, lgb.Dataset(TABLE, label=CLASSES), 4)
    folder = mlflow_folder(tmp_path / "light", {"lightgbm": {"data": "model.lgb", "model_class": "lightgbm.Booster"}})
    light.save_model(folder / "model.lgb")

    async def scenario(served: Served) -> None:
        rows = TABLE[:6].astype(np.float32)
        outputs = await served.ask("wrapped", input=TABLE[:6])
        np.testing.assert_array_equal(outputs["predict"].ravel(), classifier.predict(rows))
        np.testing.assert_array_equal(outputs["predict_proba"], classifier.predict_proba(rows))
        outputs = await served.ask("booster", input=rows)
        np.testing.assert_array_equal(outputs["predict"].ravel(), classifier.predict_proba(rows)[:, 1])
        outputs = await served.ask("light", input=TABLE[:6])
        np.testing.assert_array_equal(outputs["predict"].ravel(), light.predict(TABLE[:6]))

    serve(tmp_path, scenario)


def test_what_is_wrong_with_an_mlflow_folder_is_a_load_error_with_words(tmp_path: Path) -> None:
    mlflow_folder(tmp_path / "empty", {})
    mlflow_folder(tmp_path / "lost", sklearn_flavors())
    mlflow_folder(tmp_path / "typed", sklearn_flavors(), [{"type": "binary", "name": "picture"}])
    (tmp_path / "typed" / "model.pkl").write_bytes(pickle.dumps(5))
    place(tmp_path, "absent", 'backend: "mlflow"')
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "MLmodel").write_text("flavors: [")
    mlflow_folder(tmp_path / "outside", sklearn_flavors("../lost/model.pkl"))
    deep = "[" * 5_000 + "]" * 5_000
    texts = {
        "signed": "signature:\n  inputs: '[{'\n",
        "listed": "flavors: [1]\n",
        "deep": f"flavors: {deep}\n",
        "deeply_signed": f"signature:\n  inputs: '{deep}'\n",
    }
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "MLmodel").write_text(text)

    async def scenario(served: Served) -> None:
        assert "has no flavor that can be served; it has: none" in await load_error(served, "empty")
        assert "model.pkl', which" in await load_error(served, "lost")
        assert "has the type 'binary'" in await load_error(served, "typed")
        assert "put the folder that MLflow saved there" in await load_error(served, "absent")
        assert "could not be loaded as an MLmodel file" in await load_error(served, "broken")
        assert "could not be loaded as an MLmodel file with a signature" in await load_error(served, "signed")
        told = "could not be loaded as an MLmodel file: it is nested too deeply"
        assert told in await load_error(served, "deep")
        told = "could not be loaded as an MLmodel file with a signature: it is nested too deeply"
        assert told in await load_error(served, "deeply_signed")
        assert "its flavors are no mapping" in await load_error(served, "listed")
        assert "must stay within that folder" in await load_error(served, "outside")

    serve(tmp_path, scenario, models=())
