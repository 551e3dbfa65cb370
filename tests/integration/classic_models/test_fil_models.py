"""Forests under Triton's name `fil`: its files, its parameters, its tensors, and the libraries' predictions."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_repository import Served, load_error, place, serve

RNG = np.random.default_rng(11)
TABLE = RNG.normal(size=(150, 6)).astype(np.float32)
TWO = (TABLE[:, 0] > 0.2).astype(np.int64)
THREE = TWO + (TABLE[:, 1] > 0)
ROWS = TABLE[:9]

LEGACY = (
    "c-l+K%u8cnV6bOmfB;4)%>-q``1An$P&z3yFR`f7DkncZv$!NPnGGtOo>Wqln#x3HN0ACZZevE`4+i)C2LeW@TOh!}0Z26bhXRm@"
    "^@`?wFttcxcAk?|fNBregVZBTbg+l1N8;NJW&eM6PRH>7SLbv)DY-xPF?aUZYs=3zhUt#EV`C3f595Q>qNf88;DploNm;4MC7ETZ"
    "E>MALrM$%4R3$4VwB)X&qg0fd9-ot6TpVAJSd^HnWL2$HoSc}G8efoK9ABQAnVwMs)MltuTMGb*nQY_"
)
"""What `save_model` of XGBoost 2.1 wrote in the binary form that later releases cannot write: two stumps that part the
first column between 2 and 3."""


def config_text(model_type: str = "", width: int = 1, **parameters: str) -> str:
    """As Triton's documentation writes one for 6 columns."""
    given = {**({"model_type": model_type} if model_type else {}), **parameters}
    lines = [f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}' for key, value in given.items()]
    return f"""
    backend: "fil"
    max_batch_size: 32768
    input [ {{ name: "input__0" data_type: TYPE_FP32 dims: [ 6 ] }} ]
    output [ {{ name: "output__0" data_type: TYPE_FP32 dims: [ {width} ] }} ]
    instance_group [ {{ kind: KIND_AUTO }} ]
    dynamic_batching {{}}
    {" ".join(lines)}
    """


def forest(labels: Any, **options: Any) -> Any:
    xgb = pytest.importorskip("xgboost")
    pytest.importorskip("treelite")
    return xgb.train({"max_depth": 3, **options}, xgb.DMatrix(TABLE, label=labels), 8)


def predicted(booster: Any) -> Any:
    xgb = pytest.importorskip("xgboost")
    return booster.predict(xgb.DMatrix(ROWS))


def test_tritons_parameters_decide_between_classes_scores_and_values(tmp_path: Path) -> None:
    two = forest(TWO, objective="binary:logistic")
    three = forest(THREE, objective="multi:softprob", num_class=3)
    number = forest(TABLE[:, 2], objective="reg:squarederror")
    scores = predicted(two).reshape(-1, 1)
    cases: dict[str, tuple[Any, str, Any]] = {
        "class": (two, config_text("xgboost_json", output_class="true"), scores > 0.5),
        "strict": (two, config_text("xgboost_json", output_class="true", threshold="0.9"), scores > 0.9),
        "score": (two, config_text("xgboost_json", is_classifier="true", predict_proba="true"), scores),
        "both": (
            two,
            config_text("xgboost_json", 2, output_class="true", predict_proba="true"),
            np.hstack([1 - scores, scores]),
        ),
        "raw": (two, config_text("xgboost_json", output_class="false"), scores),
        "of_three": (
            three,
            config_text("xgboost_json", output_class="true"),
            predicted(three).argmax(axis=1).reshape(-1, 1),
        ),
        "scores": (
            three,
            config_text("xgboost_json", 3, output_class="true", predict_proba="true"),
            predicted(three),
        ),
        "old_name_first": (two, config_text("xgboost_json", output_class="false", is_classifier="true"), scores),
        "of_gpus": (
            two,
            config_text("xgboost_json", output_class="true", layout="layered", chunk_size="4"),
            scores > 0.5,
        ),
        "number": (number, config_text("xgboost_json", output_class="false"), predicted(number).reshape(-1, 1)),
    }
    for name, (booster, config, _) in cases.items():
        booster.save_model(place(tmp_path, name, config) / "xgboost.json")

    async def scenario(served: Served) -> None:
        for name, (_, _, expected) in cases.items():
            outputs = await served.ask(name, input__0=ROWS)
            assert outputs["output__0"].dtype == np.float32
            np.testing.assert_allclose(outputs["output__0"], expected.astype(np.float32), rtol=1e-5, atol=1e-6)
        assert served.config("class").default_model_filename == ""

    serve(tmp_path, scenario)


def test_every_model_type_is_read_and_a_file_alone_is_enough(tmp_path: Path) -> None:
    lgb, treelite = pytest.importorskip("lightgbm"), pytest.importorskip("treelite")
    ensemble = pytest.importorskip("sklearn.ensemble")
    booster = forest(TWO, objective="binary:logistic")
    booster.save_model(place(tmp_path, "ubj") / "xgboost.ubj")
    booster.save_model(place(tmp_path, "named", config_text("xgboost_ubj", output_class="false")) / "xgboost.ubj")
    light = lgb.train({"objective": "multiclass", "num_class": 3, "verbose": -1}, lgb.Dataset(TABLE, label=THREE), 5)
    scores = config_text("lightgbm", 3, output_class="true", predict_proba="true")
    light.save_model(place(tmp_path, "light", scores) / "model.txt")
    trees = ensemble.RandomForestRegressor(5, random_state=1).fit(TABLE, TABLE[:, 4])
    treelite.sklearn.import_model(trees).serialize(str(place(tmp_path, "checkpoint") / "checkpoint.tl"))
    legacy = 'backend: "fil" parameters { key: "model_type" value { string_value: "xgboost" } }'
    legacy += ' parameters { key: "predict_proba" value { string_value: "true" } }'
    (place(tmp_path, "legacy", legacy) / "xgboost.model").write_bytes(zlib.decompress(base64.b85decode(LEGACY)))

    async def scenario(served: Served) -> None:
        config = served.config("ubj")
        assert (config.backend, config.max_batch_size) == ("fil", 4096)
        assert [(entry.name, list(entry.dims)) for entry in config.input] == [("input__0", [6])]
        assert [(entry.name, list(entry.dims)) for entry in config.output] == [("output__0", [1])]
        found = {name: (await served.ask(name, input__0=ROWS))["output__0"] for name in ("ubj", "named", "light")}
        np.testing.assert_array_equal(found["ubj"].ravel(), predicted(booster) > 0.5)
        np.testing.assert_allclose(found["named"].ravel(), predicted(booster), rtol=1e-6)
        np.testing.assert_allclose(found["light"], light.predict(ROWS), rtol=1e-6)
        values = (await served.ask("checkpoint", input__0=ROWS))["output__0"]
        np.testing.assert_allclose(values.ravel(), trees.predict(ROWS), rtol=1e-6)
        rows = np.array([[0, 1], [5, 4]], dtype=np.float32)
        two = (await served.ask("legacy", input__0=rows))["output__0"]
        np.testing.assert_allclose(two.ravel(), [0.3815468, 0.6184532], rtol=1e-6)

    serve(tmp_path, scenario)


def test_what_is_wrong_with_a_forest_is_a_load_error_with_words(tmp_path: Path) -> None:
    booster = forest(TWO, objective="binary:logistic")
    shap = config_text("xgboost_json") + ' output { name: "treeshap_output" data_type: TYPE_FP32 dims: 7 }'
    for name, config in {
        "type": config_text("forest"),
        "shap": shap,
        "threshold": config_text("xgboost_json", threshold="half"),
        "other": config_text("lightgbm"),
    }.items():
        booster.save_model(place(tmp_path, name, config) / "xgboost.json")
    (place(tmp_path, "cut", config_text("xgboost_json")) / "xgboost.json").write_text('{"learner"')

    async def scenario(served: Served) -> None:
        assert "must be one of xgboost_ubj, xgboost_json, xgboost, lightgbm" in await load_error(served, "type")
        assert "have it as 'contributions'" in await load_error(served, "shap")
        assert "must be a number, found 'half'" in await load_error(served, "threshold")
        assert "model.txt' for model 'other'" in await load_error(served, "other")
        assert "could not be loaded as a model of type 'xgboost_json'" in await load_error(served, "cut")

    serve(tmp_path, scenario, models=())
