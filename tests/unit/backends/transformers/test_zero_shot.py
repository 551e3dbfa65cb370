"""Labels that a request brings: the scores and places are those of the library's pipelines, in batches too."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from payloads import png, sound, texts, wav
from tiny_multimodal_models import multimodal_model

from trireme.core.errors import ErrorKind, ServingError
from trireme.testing import Request

pytestmark = pytest.mark.filterwarnings("ignore")

LABELS = ["ship", "red sea", "a good captain"]
OTHER_LABELS = ["storm", "the captain of a big ship in the harbour of athens"]


@pytest.fixture(scope="module")
def library() -> Any:
    return pytest.importorskip("transformers")


def row(*values: Any) -> Any:
    """One row of a tensor of texts or files."""
    array = np.empty((1, len(values)), dtype=np.object_)
    array[0] = [value.encode() if isinstance(value, str) else value for value in values]
    return array


def picture(content: bytes) -> Any:
    from PIL import Image

    return Image.open(io.BytesIO(content)).convert("RGB")


def assert_labels(result: Any, expected: Any) -> None:
    assert texts(result["label"]) == [entry["label"] for entry in expected]
    np.testing.assert_allclose(result["score"][0], [entry["score"] for entry in expected], rtol=1e-3, atol=1e-6)


def assert_objects(result: Any, expected: Any) -> None:
    """The same objects; those whose scores differ by rounding may change places."""
    assert result["label"].shape == (1, len(expected))
    np.testing.assert_allclose(result["score"][0], [entry["score"] for entry in expected], rtol=1e-3)
    sides = ("xmin", "ymin", "xmax", "ymax")
    wanted = sorted((entry["label"], *(entry["box"][side] for side in sides)) for entry in expected)
    found = sorted((label, *box) for label, box in zip(texts(result["label"]), result["box"][0].tolist(), strict=True))
    assert [entry[0] for entry in found] == [entry[0] for entry in wanted]
    np.testing.assert_allclose([entry[1:] for entry in found], [entry[1:] for entry in wanted], atol=1)


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_labels_of_images_equal_the_pipelines_whatever_their_neighbours_ask(
    serve: Any, library: Any, kind: str
) -> None:
    pipeline = library.pipeline("zero-shot-image-classification", model=str(multimodal_model(kind)))
    asked = [(png(1), LABELS), (png(2, 30, 60), OTHER_LABELS), (png(3), LABELS), (png(1), ["sea", "sea"])]
    results = serve(multimodal_model(kind)).infer_many(
        [{"image": row(content), "candidate_labels": row(*labels)} for content, labels in asked]
    )
    for result, (content, labels) in zip(results, asked, strict=True):
        assert_labels(result, pipeline(picture(content), candidate_labels=labels))


def test_images_with_labels_run_in_one_forward(serve: Any, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, counts = serve(multimodal_model("clip")), []
    forward = library.CLIPModel.forward

    def counted(self: Any, *args: Any, **inputs: Any) -> Any:
        counts.append((inputs["pixel_values"].shape[0], inputs["input_ids"].shape[0]))
        return forward(self, *args, **inputs)

    monkeypatch.setattr(library.CLIPModel, "forward", counted)
    requests = [{"image": row(png(seed)), "candidate_labels": row(*LABELS)} for seed in range(5)]
    for result in model.infer_many(requests):
        result.check()
    assert counts == [(5, 3)]


def test_a_template_and_labels_may_come_from_the_configuration(serve: Any, library: Any) -> None:
    folder = multimodal_model("clip")
    model = serve(folder, candidate_labels="storm, sea", hypothesis_template="the {} is big")
    pipeline = library.pipeline("zero-shot-image-classification", model=str(folder))
    expected = pipeline(picture(png(1)), candidate_labels=["storm", "sea"], hypothesis_template="the {} is big")
    assert_labels(model.infer(image=row(png(1))), expected)


@pytest.mark.parametrize("kind", ["owlvit", "grounding"])
def test_objects_equal_the_pipelines(serve: Any, library: Any, kind: str) -> None:
    folder = multimodal_model(kind)
    pipeline = library.pipeline("zero-shot-object-detection", model=str(folder))
    asked = [(png(1), LABELS), (png(2), [*OTHER_LABELS, "sail"]), (png(3, 60, 100), LABELS), (png(4), OTHER_LABELS)]
    results = serve(folder, threshold=0.3).infer_many(
        [{"image": row(content), "candidate_labels": row(*labels)} for content, labels in asked]
    )
    count = 0
    for result, (content, labels) in zip(results, asked, strict=True):
        expected = pipeline(picture(content), candidate_labels=labels, threshold=0.3)
        count += len(expected)
        assert_objects(result, expected)
    assert count > 4


def test_objects_of_one_request_have_its_own_threshold_and_number(serve: Any, library: Any) -> None:
    folder = multimodal_model("owlvit")
    inputs = {"image": row(png(1)), "candidate_labels": row(*LABELS)}
    wishes: list[dict[str, Any]] = [{"threshold": 0.55}, {"top_k": 2}, {"threshold": 1.0}, {}]
    results = serve(folder).infer_many([Request(inputs, parameters=wish) for wish in wishes])
    pipeline = library.pipeline("zero-shot-object-detection", model=str(folder))
    for result, wish in zip(results, wishes, strict=True):
        assert_objects(result, pipeline(picture(png(1)), candidate_labels=LABELS, **wish))
    assert results[2]["box"].shape == (1, 0, 4)


def test_a_package_that_only_images_need_is_asked_for_when_the_model_loads(
    serve: Any, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = multimodal_model("owlvit")

    def missing(*args: Any, **options: Any) -> Any:
        raise ImportError("it requires the scipy library\nand more of that")

    monkeypatch.setattr(type(library.AutoImageProcessor.from_pretrained(folder)), "__call__", missing)
    with pytest.raises(Exception, match=r"needs a package that is not installed: it requires the scipy library$"):
        serve(folder)


@pytest.mark.parametrize("kind", ["clap", "clap-fused"])
def test_labels_of_sounds_equal_the_pipelines(serve: Any, library: Any, kind: str) -> None:
    folder = multimodal_model(kind)
    pipeline = library.pipeline("zero-shot-audio-classification", model=str(folder))
    asked = [(sound(1), LABELS), (sound(2, 1.7), OTHER_LABELS), (sound(3, 3.5), LABELS), (sound(1), LABELS)]
    results = serve(folder).infer_many(
        [{"audio": row(wav(samples)), "candidate_labels": row(*labels)} for samples, labels in asked]
    )
    for result, (samples, labels) in zip(results, asked, strict=True):
        np.random.seed(0)  # the library listens to a part of a long sound that it draws by chance
        assert_labels(result, pipeline(samples, candidate_labels=labels))


def test_a_long_sound_is_answered_alike_each_time(serve: Any) -> None:
    model = serve(multimodal_model("clap"))
    inputs = {"audio": row(wav(sound(3, 5.0))), "candidate_labels": row(*LABELS)}
    assert len({model.infer(Request(inputs))["score"].tobytes() for _ in range(3)}) == 1


@pytest.mark.parametrize(
    ("kind", "labels", "parameters", "told"),
    [
        ("clip", [], {}, "'candidate_labels' are missing"),
        ("clip", LABELS, {"hypothesis_template": "a photo"}, "'hypothesis_template' must have a {} for the label"),
        ("clip", ["sea " * 40], {}, "and the model takes at most 24"),
        ("owlvit", LABELS, {"threshold": 1.5}, "'threshold' must be from 0 to 1, found 1.5"),
        ("owlvit", LABELS, {"top_k": -1}, "'top_k' must be at least 1, or 0 for all objects; found -1"),
        ("owlvit", ["sea " * 40], {}, "and the model takes at most 16"),
        ("grounding", [""], {}, "'candidate_labels' are missing"),
    ],
)
def test_a_bad_request_is_told_so_and_its_neighbour_is_answered(
    serve: Any, kind: str, labels: list[str], parameters: dict[str, Any], told: str
) -> None:
    inputs = {"image": row(png(1))} | ({"candidate_labels": row(*labels)} if labels else {})
    good, bad = serve(multimodal_model(kind)).infer_many(
        [{"image": row(png(1)), "candidate_labels": row(*LABELS)}, Request(inputs, parameters=parameters)]
    )
    assert good["score"].size > 0
    with pytest.raises(ServingError) as caught:
        bad.check()
    assert told in str(caught.value)
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("siglip", "image", "could not be read as an image"),
        ("owlvit", "image", "could not be read as an image"),
        ("clap", "audio", "is not a WAV file"),
    ],
)
def test_what_is_no_image_or_sound_is_the_error_of_its_request_alone(
    serve: Any, kind: str, name: str, told: str
) -> None:
    content = {"image": png(1), "audio": wav(sound(1))}[name]
    good, bad = serve(multimodal_model(kind)).infer_many(
        [{name: row(part), "candidate_labels": row(*LABELS)} for part in (content, b"neither")]
    )
    good.check()
    with pytest.raises(ServingError, match=told):
        bad.check()


def test_a_text_too_long_may_be_cut(serve: Any) -> None:
    request = Request(
        {"image": row(png(1)), "candidate_labels": row("sea " * 40, "ship")}, parameters={"truncation": True}
    )
    result = serve(multimodal_model("clip")).infer(request)
    assert result["score"].sum() == pytest.approx(1, abs=1e-5)
