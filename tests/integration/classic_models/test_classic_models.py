"""Models of scikit-learn, XGBoost, LightGBM and CatBoost: the library's own predictions, from the file alone."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from served_repository import Served, load_error, place, serve

from trireme.core.errors import ServingError

RNG = np.random.default_rng(5)
TABLE = RNG.normal(size=(120, 4))
CLASSES = (TABLE[:, 0] + TABLE[:, 1] > 0).astype(np.int64)
COLOURS = np.array(["blue", "green", "red"])[(TABLE[:, 2] > -0.4).astype(int) + (TABLE[:, 2] > 0.4)]
ROWS = TABLE[:7]


def sklearn_classifier(labels: NDArray[Any]) -> Any:
    linear = pytest.importorskip("sklearn.linear_model")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    pipeline = pytest.importorskip("sklearn.pipeline")
    return pipeline.make_pipeline(preprocessing.StandardScaler(), linear.LogisticRegression()).fit(TABLE, labels)


def test_a_pickled_pipeline_alone_is_served_with_classes_and_probabilities(tmp_path: Path) -> None:
    model = sklearn_classifier(CLASSES)
    (place(tmp_path, "iris") / "model.pkl").write_bytes(pickle.dumps(model))

    async def scenario(served: Served) -> None:
        config = served.config("iris")
        assert (config.backend, config.max_batch_size) == ("sklearn", 4096)
        assert config.HasField("dynamic_batching")
        assert [(entry.name, list(entry.dims)) for entry in config.input] == [("input", [4])]
        assert [(entry.name, list(entry.dims)) for entry in config.output] == [
            ("predict", [1]),
            ("predict_proba", [2]),
        ]
        outputs = await served.ask("iris", input=ROWS)
        assert outputs["predict"].dtype == np.int64
        np.testing.assert_array_equal(outputs["predict"].ravel(), model.predict(ROWS))
        np.testing.assert_array_equal(outputs["predict_proba"], model.predict_proba(ROWS))

    serve(tmp_path, scenario)


def test_requests_of_a_batch_are_predicted_at_once(tmp_path: Path) -> None:
    model = sklearn_classifier(COLOURS)
    config = "max_batch_size: 16 dynamic_batching { max_queue_delay_microseconds: 500000 preferred_batch_size: [ 6 ] }"
    joblib = pytest.importorskip("joblib")
    joblib.dump(model, place(tmp_path, "colours", config) / "model.joblib", compress=3)

    async def scenario(served: Served) -> None:
        parts = [ROWS[:1], ROWS[1:3], ROWS[3:6]]
        answers = await asyncio.gather(*(served.ask("colours", input=part) for part in parts))
        for part, outputs in zip(parts, answers, strict=True):
            assert [label.decode() for label in outputs["predict"].ravel()] == list(model.predict(part))
            np.testing.assert_allclose(outputs["predict_proba"], model.predict_proba(part), rtol=1e-14)
        assert served.execution_count("colours") == 1

    serve(tmp_path, scenario)


def test_a_configuration_chooses_outputs_names_and_datatypes(tmp_path: Path) -> None:
    model = sklearn_classifier(CLASSES)
    config = """
    backend: "sklearn"
    input { name: "measures" data_type: TYPE_FP32 dims: 4 }
    output { name: "decision_function" data_type: TYPE_FP32 dims: 1 }
    """
    (place(tmp_path, "margins", config) / "model.pkl").write_bytes(pickle.dumps(model))
    wrong = config.replace("decision_function", "certainty")
    (place(tmp_path, "wrong_output", wrong) / "model.pkl").write_bytes(pickle.dumps(model))
    (place(tmp_path, "wrong_width", config.replace("dims: 4", "dims: 5")) / "model.pkl").write_bytes(
        pickle.dumps(model)
    )

    async def scenario(served: Served) -> None:
        rows = ROWS.astype(np.float32)
        outputs = await served.ask("margins", measures=rows)
        assert outputs["decision_function"].dtype == np.float32
        expected = model.decision_function(rows).astype(np.float32)
        np.testing.assert_array_equal(outputs["decision_function"].ravel(), expected)
        text = await load_error(served, "wrong_output")
        assert "'certainty'" in text
        assert "allowed outputs are: predict, predict_proba" in text
        assert "(shape [-1,4])" in await load_error(served, "wrong_width")

    serve(tmp_path, scenario, models=("margins",))


def test_a_model_trained_with_named_columns_takes_a_row_or_an_input_for_each(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    compose = pytest.importorskip("sklearn.compose")
    linear = pytest.importorskip("sklearn.linear_model")
    pipeline = pytest.importorskip("sklearn.pipeline")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    frame = pandas.DataFrame({"size": TABLE[:, 0], "colour": COLOURS})
    steps = compose.ColumnTransformer([("colour", preprocessing.OneHotEncoder(), ["colour"])], remainder="passthrough")
    model = pipeline.make_pipeline(steps, linear.LinearRegression()).fit(frame, TABLE[:, 1])
    config = """
    backend: "sklearn"
    input { name: "colour" data_type: TYPE_STRING dims: 1 }
    input { name: "size" data_type: TYPE_FP64 dims: 1 }
    output { name: "predict" data_type: TYPE_FP64 dims: 1 }
    """
    (place(tmp_path, "prices", config) / "model.pkl").write_bytes(pickle.dumps(model))
    lacking = config.replace('"colour"', '"color"')
    (place(tmp_path, "lacking", lacking) / "model.pkl").write_bytes(pickle.dumps(model))
    numbers = linear.LinearRegression().fit(pandas.DataFrame(TABLE, columns=list("abcd")), TABLE[:, 1])
    (place(tmp_path, "numbers") / "model.pkl").write_bytes(pickle.dumps(numbers))

    async def scenario(served: Served) -> None:
        colour = np.array([[word.encode()] for word in COLOURS[:5]], dtype=np.object_)
        outputs = await served.ask("prices", colour=colour, size=TABLE[:5, :1])
        np.testing.assert_array_equal(outputs["predict"].ravel(), model.predict(frame[:5]))
        with pytest.raises(ServingError, match="unknown categor"):
            await served.ask("prices", colour=np.array([[b"pink"]], dtype=np.object_), size=TABLE[:1, :1])
        rows = pandas.DataFrame(ROWS, columns=list("abcd"))
        outputs = await served.ask("numbers", input=ROWS)
        np.testing.assert_array_equal(outputs["predict"].ravel(), numbers.predict(rows))
        text = await load_error(served, "lacking")
        assert "missing ['colour'], unknown ['color']" in text

    serve(tmp_path, scenario, models=("prices", "numbers"))


def test_a_pipeline_that_reads_texts_takes_strings(tmp_path: Path) -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    bayes = pytest.importorskip("sklearn.naive_bayes")
    pipeline = pytest.importorskip("sklearn.pipeline")
    words = ["good ship", "bad storm", "good wind", "bad rock"]
    model = pipeline.make_pipeline(text.TfidfVectorizer(), bayes.MultinomialNB()).fit(words, [1, 0, 1, 0])
    (place(tmp_path, "moods") / "model.pkl").write_bytes(pickle.dumps(model))

    async def scenario(served: Served) -> None:
        asked = np.array([[b"good rock"], [b"bad storm"]], dtype=np.object_)
        outputs = await served.ask("moods", input=asked)
        np.testing.assert_array_equal(outputs["predict_proba"], model.predict_proba(["good rock", "bad storm"]))
        with pytest.raises(ServingError, match="is not UTF-8 text"):
            await served.ask("moods", input=np.array([[b"\xff"]], dtype=np.object_))

    serve(tmp_path, scenario)


def test_a_file_of_skops_is_served_and_types_that_nobody_trusts_are_named(tmp_path: Path) -> None:
    skops = pytest.importorskip("skops.io")
    xgb = pytest.importorskip("xgboost")
    model = sklearn_classifier(CLASSES)
    skops.dump(model, place(tmp_path, "safe") / "model.skops")
    wrapped = xgb.XGBClassifier(n_estimators=2, max_depth=2).fit(TABLE, CLASSES)
    skops.dump(wrapped, place(tmp_path, "foreign") / "model.skops")
    trusted = ", ".join(skops.get_untrusted_types(file=tmp_path / "foreign" / "1" / "model.skops"))
    config = f'parameters {{ key: "trusted_types" value {{ string_value: "{trusted}" }} }}'
    skops.dump(wrapped, place(tmp_path, "trusted", config) / "model.skops")

    async def scenario(served: Served) -> None:
        outputs = await served.ask("safe", input=ROWS)
        np.testing.assert_array_equal(outputs["predict_proba"], model.predict_proba(ROWS))
        outputs = await served.ask("trusted", input=ROWS)
        np.testing.assert_array_equal(outputs["predict_proba"], wrapped.predict_proba(ROWS))
        text = await load_error(served, "foreign")
        assert "xgboost" in text
        assert "'trusted_types'" in text

    serve(tmp_path, scenario, models=("safe", "trusted"))


def test_values_that_a_model_refuses_are_the_requests_error(tmp_path: Path) -> None:
    model = sklearn_classifier(CLASSES)
    (place(tmp_path, "iris") / "model.pkl").write_bytes(pickle.dumps(model))

    async def scenario(served: Served) -> None:
        with pytest.raises(ServingError, match="contains NaN") as caught:
            await served.ask("iris", input=np.full((1, 4), np.nan))
        assert caught.value.kind.label == "Invalid argument"

    serve(tmp_path, scenario)


def test_files_that_are_no_models_are_load_errors_with_words(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    (place(tmp_path, "cut") / "model.pkl").write_bytes(pickle.dumps(sklearn_classifier(CLASSES))[:90])
    (place(tmp_path, "number") / "model.pkl").write_bytes(pickle.dumps(5))
    (place(tmp_path, "absent", 'backend: "sklearn"')).joinpath("notes.txt").write_text("nothing")
    (place(tmp_path, "foreign") / "model.pkl").write_bytes(b"cno_such_package\nThing\n.")

    async def scenario(served: Served) -> None:
        assert "could not be loaded as a pickle" in await load_error(served, "cut")
        assert "holds a int, which has neither predict nor transform" in await load_error(served, "number")
        assert "unable to find" in await load_error(served, "absent")
        assert "needs the package 'no_such_package'" in await load_error(served, "foreign")

    serve(tmp_path, scenario, models=())


def test_a_pickle_runs_in_the_worker_and_never_in_the_server(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    mark = tmp_path / "process"
    code = f"import os; open({str(mark)!r}, 'w').write(str(os.getpid()))"
    evil = b"cbuiltins\nexec\n(V" + code.encode() + b"\ntR."
    (place(tmp_path / "models", "evil") / "model.pkl").write_bytes(evil)

    async def scenario(served: Served) -> None:
        assert "holds a NoneType" in await load_error(served, "evil")

    serve(tmp_path / "models", scenario, models=())
    assert mark.read_text() != str(os.getpid())


@pytest.mark.parametrize("file_name", ["model.json", "model.ubj"])
def test_a_booster_of_xgboost_alone_is_served(tmp_path: Path, file_name: str) -> None:
    xgb = pytest.importorskip("xgboost")
    rows = ROWS.astype(np.float32)
    rows[0, 1] = np.nan
    cases: dict[str, tuple[dict[str, Any], NDArray[Any]]] = {
        "binary": ({"objective": "binary:logistic"}, CLASSES),
        "several": ({"objective": "multi:softprob", "num_class": 3}, CLASSES + (TABLE[:, 2] > 0)),
        "number": ({"objective": "reg:squarederror"}, TABLE[:, 3]),
    }
    boosters = {}
    for name, (options, labels) in cases.items():
        boosters[name] = xgb.train({"max_depth": 3, **options}, xgb.DMatrix(TABLE, label=labels), 6)
        boosters[name].save_model(place(tmp_path, name) / file_name)

    async def scenario(served: Served) -> None:
        for name, booster in boosters.items():
            assert served.config(name).backend == "xgboost"
            outputs = await served.ask(name, input=rows)
            expected = booster.predict(xgb.DMatrix(rows))
            np.testing.assert_array_equal(outputs["predict"], expected.reshape(len(rows), -1))

    serve(tmp_path, scenario)


def test_boosters_give_margins_contributions_and_leaves_where_asked(tmp_path: Path) -> None:
    xgb, lgb = pytest.importorskip("xgboost"), pytest.importorskip("lightgbm")
    names = ("predict", "margin", "contributions", "leaf")
    outputs = " ".join(f'output {{ name: "{name}" }}' for name in names)
    ours = xgb.train({"max_depth": 2, "objective": "binary:logistic"}, xgb.DMatrix(TABLE, label=CLASSES), 3)
    ours.save_model(place(tmp_path, "xgb", f'backend: "xgboost" {outputs}') / "model.ubj")
    theirs = lgb.train({"objective": "binary", "verbose": -1}, lgb.Dataset(TABLE, label=CLASSES), 3)
    theirs.save_model(place(tmp_path, "lgb", f'backend: "lightgbm" {outputs}') / "model.txt")
    matrix = xgb.DMatrix(ROWS.astype(np.float32))
    expected = {
        "xgb": [
            ours.predict(matrix),
            ours.predict(matrix, output_margin=True),
            ours.predict(matrix, pred_contribs=True),
            ours.predict(matrix, pred_leaf=True),
        ],
        "lgb": [
            theirs.predict(ROWS),
            theirs.predict(ROWS, raw_score=True),
            theirs.predict(ROWS, pred_contrib=True),
            theirs.predict(ROWS, pred_leaf=True),
        ],
    }

    async def scenario(served: Served) -> None:
        for model, arrays in expected.items():
            rows = ROWS.astype(np.float32) if model == "xgb" else ROWS
            found = await served.ask(model, input=rows)
            for name, array in zip(names, arrays, strict=True):
                np.testing.assert_array_equal(found[name], array.reshape(len(ROWS), -1))

    serve(tmp_path, scenario)


def test_a_booster_of_lightgbm_alone_is_served_and_knows_its_categories(tmp_path: Path) -> None:
    lgb, pandas = pytest.importorskip("lightgbm"), pytest.importorskip("pandas")
    several = lgb.train(
        {"objective": "multiclass", "num_class": 2, "verbose": -1}, lgb.Dataset(TABLE, label=CLASSES), 5
    )
    several.save_model(place(tmp_path, "several") / "model.txt")
    frame = pandas.DataFrame({"size": TABLE[:, 0], "colour": pandas.Categorical(COLOURS)})
    coloured = lgb.train({"objective": "regression", "verbose": -1}, lgb.Dataset(frame, label=TABLE[:, 2]), 5)
    config = """
    backend: "lightgbm"
    input { name: "size" dims: 1 }
    input { name: "colour" data_type: TYPE_STRING dims: 1 }
    """
    coloured.save_model(place(tmp_path, "coloured", config) / "model.txt")

    async def scenario(served: Served) -> None:
        outputs = await served.ask("several", input=ROWS)
        np.testing.assert_array_equal(outputs["predict"], several.predict(ROWS))
        colour = np.array([[word.encode()] for word in COLOURS[:7]], dtype=np.object_)
        outputs = await served.ask("coloured", size=ROWS[:, :1], colour=colour)
        np.testing.assert_array_equal(outputs["predict"].ravel(), coloured.predict(frame[:7]))

    serve(tmp_path, scenario)


def test_a_model_of_catboost_alone_is_served_with_an_input_for_each_column_where_it_has_categories(
    tmp_path: Path,
) -> None:
    cb = pytest.importorskip("catboost", reason="catboost is large, and not among the test requirements")
    pandas = pytest.importorskip("pandas")
    quiet = {"iterations": 5, "verbose": False, "allow_writing_files": False}
    plain = cb.CatBoostClassifier(**quiet).fit(TABLE, COLOURS)
    plain.save_model(str(place(tmp_path, "plain") / "model.cbm"))
    counts = np.abs(np.round(TABLE[:, 0] * 3))
    poisson = cb.CatBoostRegressor(loss_function="Poisson", **quiet).fit(TABLE, counts)
    poisson.save_model(str(place(tmp_path, "poisson") / "model.cbm"))
    frame = pandas.DataFrame({"size": TABLE[:, 0].astype(np.float32), "colour": COLOURS})
    mixed = cb.CatBoostRegressor(cat_features=["colour"], **quiet).fit(frame, TABLE[:, 2])
    mixed.save_model(str(place(tmp_path, "mixed") / "model.cbm"))

    async def scenario(served: Served) -> None:
        rows = ROWS.astype(np.float32)
        outputs = await served.ask("plain", input=rows)
        assert [label.decode() for label in outputs["predict"].ravel()] == list(plain.predict(rows).ravel())
        np.testing.assert_array_equal(outputs["predict_proba"], plain.predict_proba(rows))
        outputs = await served.ask("poisson", input=rows)
        np.testing.assert_array_equal(outputs["predict"].ravel(), poisson.predict(rows))
        assert [entry.name for entry in served.config("mixed").input] == ["size", "colour"]
        colour = np.array([[word.encode()] for word in COLOURS[:7]], dtype=np.object_)
        outputs = await served.ask("mixed", size=rows[:, :1], colour=colour)
        np.testing.assert_array_equal(outputs["predict"].ravel(), mixed.predict(frame[:7]))

    serve(tmp_path, scenario)


def test_the_best_iteration_of_xgboost_is_used_where_the_parameter_says_so(tmp_path: Path) -> None:
    xgb = pytest.importorskip("xgboost")
    matrix = xgb.DMatrix(TABLE, label=RNG.integers(0, 2, len(TABLE)))
    booster = xgb.train(
        {"objective": "binary:logistic"},
        matrix,
        30,
        evals=[(xgb.DMatrix(TABLE, label=CLASSES), "other")],
        early_stopping_rounds=3,
        verbose_eval=False,
    )
    best = 'backend: "xgboost" parameters { key: "best_iteration" value { string_value: "true" } }'
    booster.save_model(place(tmp_path, "best", best) / "model.ubj")
    booster.save_model(place(tmp_path, "all") / "model.ubj")
    never = xgb.train({}, matrix, 1)
    never.save_model(place(tmp_path, "never", best) / "model.ubj")

    async def scenario(served: Served) -> None:
        rows = ROWS.astype(np.float32)
        asked = xgb.DMatrix(rows)
        stopped = booster.predict(asked, iteration_range=(0, booster.best_iteration + 1))
        assert not np.array_equal(stopped, booster.predict(asked))
        np.testing.assert_array_equal((await served.ask("best", input=rows))["predict"].ravel(), stopped)
        np.testing.assert_array_equal((await served.ask("all", input=rows))["predict"].ravel(), booster.predict(asked))
        assert "knows no best iteration" in await load_error(served, "never")

    serve(tmp_path, scenario, models=("best", "all"))


def test_a_library_that_is_absent_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    files = {"catboost": "model.cbm", "sklearn": "model.pkl", "xgboost": "model.ubj", "lightgbm": "model.txt"}
    absent = {name: file for name, file in files.items() if importlib.util.find_spec(name) is None}
    if not absent:
        pytest.skip("all of the libraries are installed")
    for name, file in absent.items():
        (place(tmp_path, f"of_{name}") / file).write_bytes(b"")

    async def scenario(served: Served) -> None:
        for name in absent:
            assert f"pip install -c constraints.txt '.[{name}]'" in await load_error(served, f"of_{name}")

    serve(tmp_path, scenario, models=())
