"""Each task of texts gives what the library gives for each request alone, however they are batched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from payloads import text, texts
from tiny_task_models import task_model

from trireme.core.errors import ErrorKind, ServingError
from trireme.testing import Request

pytestmark = pytest.mark.filterwarnings("ignore")

SENTENCES = ["the ship is fast", "a storm at sea , and the captain sails on !", "otto hates cooking", "good"]


@pytest.fixture(scope="module")
def library() -> Any:
    return pytest.importorskip("transformers")


def ask_together(model: Any, **inputs: list[str]) -> list[Any]:
    rows = zip(*inputs.values(), strict=True)
    return model.infer_many([dict(zip(inputs, map(text, row), strict=True)) for row in rows])


@pytest.mark.parametrize("kind", ["bert-classifier", "gpt2-classifier", "fnet-classifier"])
def test_labels_equal_the_pipelines(serve: Any, library: Any, kind: str) -> None:
    pipeline = library.pipeline("text-classification", model=str(task_model(kind)))
    if pipeline.tokenizer.pad_token is None:
        pipeline.model.config.pad_token_id = 0
    results = ask_together(serve(task_model(kind)), text=SENTENCES)
    for result, sentence in zip(results, SENTENCES, strict=True):
        (expected,) = pipeline(sentence)
        assert texts(result["label"]) == [expected["label"]]
        np.testing.assert_allclose(result["score"], [[expected["score"]]], rtol=1e-4)


def test_labels_with_options_equal_the_pipelines(serve: Any, library: Any) -> None:
    folder = task_model("bert-classifier")
    pipeline = library.pipeline("sentiment-analysis", model=str(folder))
    model = serve(folder, task="sentiment-analysis", top_k=2)
    pair = {"text": SENTENCES[0], "text_pair": SENTENCES[1]}
    requests = [
        Request({"text": text(SENTENCES[0])}),
        Request({"text": text(SENTENCES[1])}, parameters={"top_k": 3, "function_to_apply": "sigmoid"}),
        Request({name: text(value) for name, value in pair.items()}, parameters={"top_k": 0}),
    ]
    expected = [
        pipeline(SENTENCES[0], top_k=2),
        pipeline(SENTENCES[1], top_k=None, function_to_apply="sigmoid"),
        pipeline([pair], top_k=None)[0],
    ]
    for result, labels in zip(model.infer_many(requests), expected, strict=True):
        assert texts(result["label"]) == [label["label"] for label in labels]
        np.testing.assert_allclose(result["score"][0], [label["score"] for label in labels], rtol=1e-4)


def test_a_request_of_several_rows_gets_a_row_for_each(serve: Any) -> None:
    model = serve(task_model("bert-classifier"))
    together = model.infer(text=text(*SENTENCES))
    alone = [model.infer(text=text(sentence)) for sentence in SENTENCES]
    assert together["label"].shape == (len(SENTENCES), 1)
    assert texts(together["label"]) == [texts(result["label"])[0] for result in alone]
    np.testing.assert_allclose(together["score"], np.concatenate([result["score"] for result in alone]), rtol=1e-4)


def test_a_text_without_tokens_is_the_error_of_its_request_alone(serve: Any) -> None:
    good, bad = serve(task_model("gpt2-classifier")).infer_many([{"text": text("the ship")}, {"text": text("")}])
    good.check()
    with pytest.raises(ServingError, match="the text is empty: it has no tokens"):
        bad.check()


def test_a_text_that_is_too_long_is_the_error_of_its_request_alone(serve: Any) -> None:
    model = serve(task_model("bert-classifier"))
    long = "ship " * 100
    good, bad, cut = model.infer_many(
        [{"text": text("good")}, {"text": text(long)}, Request({"text": text(long)}, parameters={"truncation": True})]
    )
    assert good["label"].shape == cut["label"].shape == (1, 1)
    with pytest.raises(ServingError, match=r"the text has 102 tokens, and the model takes at most 64.*'truncation'"):
        bad.check()


@pytest.mark.parametrize("strategy", ["none", "simple", "first", "average", "max"])
def test_entities_equal_the_pipelines(serve: Any, library: Any, strategy: str) -> None:
    folder = task_model("bert-entities")
    pipeline = library.pipeline("ner", model=str(folder), aggregation_strategy=strategy)
    results = ask_together(serve(folder, aggregation_strategy=strategy), text=SENTENCES)
    name = "entity" if strategy == "none" else "entity_group"
    for result, sentence in zip(results, SENTENCES, strict=True):
        expected = pipeline(sentence)
        assert texts(result["entity"]) == [entity[name] for entity in expected]
        assert texts(result["word"]) == [entity["word"] for entity in expected]
        assert result["start"][0].tolist() == [entity["start"] for entity in expected]
        assert result["end"][0].tolist() == [entity["end"] for entity in expected]
        np.testing.assert_allclose(result["score"][0], [entity["score"] for entity in expected], rtol=1e-4)


def test_masks_are_filled_as_the_pipeline_does(serve: Any, library: Any) -> None:
    folder = task_model("bert-mask")
    pipeline = library.pipeline("fill-mask", model=str(folder), top_k=3)
    model = serve(folder, top_k=3)
    one, two = "the [MASK] is fast", "the [MASK] is [MASK] and the captain likes it"
    single, double, usual = ask_together(model, text=[one, two, one.replace("[MASK]", "<mask>")])
    expected = pipeline(one)
    assert texts(single["token_str"]) == [word["token_str"] for word in expected]
    assert texts(single["sequence"]) == [word["sequence"] for word in expected]
    assert single["token"][0].tolist() == [[word["token"] for word in expected]]
    np.testing.assert_allclose(single["score"][0, 0], [word["score"] for word in expected], rtol=1e-3)
    assert texts(usual["sequence"]) == texts(single["sequence"])
    assert double["token"].shape == (1, 2, 3)
    assert texts(double["sequence"]) == [word["sequence"] for gap in pipeline(two) for word in gap]
    with pytest.raises(ServingError, match=r"no gap to fill: write \[MASK\]"):
        model.infer(text=text("the ship"))


def test_zero_shot_labels_equal_the_pipelines(serve: Any, library: Any) -> None:
    folder = task_model("bert-entailment")
    pipeline = library.pipeline("zero-shot-classification", model=str(folder))
    model = serve(folder, task="zero-shot-classification")
    candidates = ["travel", "cooking, or not", "about a storm", *(f"a {word}" for word in ("ship", "sail") * 40)]
    labels = np.array([[candidate.encode() for candidate in candidates]], dtype=np.object_)
    requests = [
        Request({"text": text(SENTENCES[0]), "candidate_labels": labels}),
        Request({"text": text(SENTENCES[1])}, parameters={"candidate_labels": "travel, sail", "multi_label": True}),
        Request({"text": text(SENTENCES[2])}, parameters={"candidate_labels": '["travel"]'}),
    ]
    expected = [
        pipeline(SENTENCES[0], candidates),
        pipeline(SENTENCES[1], ["travel", "sail"], multi_label=True),
        pipeline(SENTENCES[2], candidates[:1]),
    ]
    for result, answer in zip(model.infer_many(requests), expected, strict=True):
        assert texts(result["label"]) == answer["labels"]
        np.testing.assert_allclose(result["score"][0], answer["scores"], rtol=1e-3)
    with pytest.raises(ServingError, match="'candidate_labels' are missing"):
        model.infer(text=text("good"))


def test_a_label_that_leaves_no_room_for_the_text_is_the_error_of_its_request_alone(serve: Any) -> None:
    model = serve(task_model("bert-entailment"), task="zero-shot-classification")
    good, bad = model.infer_many(
        [{"text": text("the ship"), "candidate_labels": text(label)} for label in ("travel", "ship " * 100)]
    )
    good.check()
    with pytest.raises(ServingError, match="one of the 'candidate_labels' leaves no room for the text") as caught:
        bad.check()
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT


def test_labels_are_not_looked_at_for_a_client_that_has_left(serve: Any) -> None:
    model = serve(task_model("bert-entailment"), task="zero-shot-classification")
    inputs = {"text": text("the ship"), "candidate_labels": text("travel,cooking")}
    (result,) = model.infer_many([Request(inputs, is_cancelled=True)])
    with pytest.raises(ServingError, match="the request was cancelled") as caught:
        result.check()
    assert caught.value.kind is ErrorKind.CANCELLED  # so that the model is not said to have failed
    both = model.infer_many([Request(inputs, is_cancelled=True), Request(inputs)])
    assert both[1]["label"].shape == (1, 2)


def test_features_equal_the_pipelines(serve: Any, library: Any) -> None:
    folder = task_model("bert-features")
    pipeline = library.pipeline("feature-extraction", model=str(folder))
    for result, sentence in zip(ask_together(serve(folder), text=SENTENCES), SENTENCES, strict=True):
        np.testing.assert_allclose(result["features"], pipeline(sentence), rtol=1e-3, atol=1e-4)


def test_sentence_embeddings_are_the_mean_of_the_tokens_and_of_length_one(serve: Any, library: Any) -> None:
    folder = task_model("bert-sentences")
    pipeline = library.pipeline("feature-extraction", model=str(folder))
    model = serve(folder)
    assert [output["name"] for output in model.config["output"]] == ["embedding"]
    for result, sentence in zip(ask_together(model, text=SENTENCES), SENTENCES, strict=True):
        mean = np.mean(pipeline(sentence)[0], axis=0)
        np.testing.assert_allclose(result["embedding"][0], mean / np.linalg.norm(mean), rtol=1e-3, atol=1e-4)
    cls = model.infer(Request({"text": text("good")}, parameters={"pooling": "cls", "normalize": False}))
    np.testing.assert_allclose(cls["embedding"][0], pipeline("good")[0][0], rtol=1e-3, atol=1e-4)


def test_static_shapes_change_no_answer(serve: Any) -> None:
    plain = ask_together(serve(task_model("bert-classifier")), text=SENTENCES[:3])
    padded = ask_together(serve(task_model("bert-classifier"), static_shapes="16,64"), text=SENTENCES[:3])
    for one, other in zip(plain, padded, strict=True):
        assert texts(one["label"]) == texts(other["label"])
        np.testing.assert_allclose(one["score"], other["score"], rtol=1e-4)
