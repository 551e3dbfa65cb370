"""Tasks of images and sounds give what the library gives for each alone, out of files, base64 and arrays."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
from payloads import file_of, picture, png, sound, texts, wav
from tiny_task_models import task_model

from trireme.backends.compiled.batching import RequestError
from trireme.backends.transformers.sound.audio import read_audio, resampled
from trireme.core.errors import ErrorKind, ServingError
from trireme.testing import Request

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def library() -> Any:
    return pytest.importorskip("transformers")


def test_labels_of_images_equal_the_pipelines(serve: Any, library: Any) -> None:
    folder = task_model("vit")
    pipeline = library.pipeline("image-classification", model=str(folder))
    files = [png(1), png(2, 30, 60), png(3)]
    model = serve(folder)
    requests = [file_of(content) for content in [*files, base64.b64encode(files[0])]]
    results = model.infer_many([{"image": content} for content in requests])
    for result, content in zip(results, [*files, files[0]], strict=True):
        expected = pipeline(picture(content))
        assert texts(result["label"]) == [label["label"] for label in expected]
        np.testing.assert_allclose(result["score"][0], [label["score"] for label in expected], rtol=1e-3)


def test_an_image_may_come_as_an_array_where_the_configuration_says_so(serve: Any) -> None:
    content = png(1)
    encoded = serve(task_model("vit")).infer(image=file_of(content))
    model = serve(task_model("vit"), 'input { name: "image" data_type: TYPE_UINT8 }')
    assert model.config["input"][0]["dims"] == [-1, -1, 3]
    array = model.infer(image=np.asarray(picture(content))[None])
    np.testing.assert_allclose(array["score"], encoded["score"], rtol=1e-5)


def test_objects_equal_the_pipelines(serve: Any, library: Any) -> None:
    folder = task_model("yolos")
    pipeline = library.pipeline("object-detection", model=str(folder))
    files = [png(1), png(2), png(3, 64, 100)]
    model = serve(folder, threshold=0.05)
    results = model.infer_many([{"image": file_of(content)} for content in files])
    count = 0
    for result, content in zip(results, files, strict=True):
        expected = pipeline(picture(content), threshold=0.05)
        count += len(expected)
        assert texts(result["label"]) == [entry["label"] for entry in expected]
        boxes = [[entry["box"][side] for side in ("xmin", "ymin", "xmax", "ymax")] for entry in expected]
        np.testing.assert_allclose(result["box"][0], np.array(boxes).reshape(-1, 4), atol=1)
        np.testing.assert_allclose(result["score"][0], [entry["score"] for entry in expected], rtol=1e-3)
    assert count > 0
    none = model.infer(Request({"image": file_of(files[0])}, parameters={"threshold": 1.0}))
    assert (none["label"].shape, none["box"].shape) == ((1, 0), (1, 0, 4))


def test_a_picture_that_says_how_it_was_taken_is_turned_upright(serve: Any, library: Any) -> None:
    turned, file = picture(png(1)), io.BytesIO()
    exif = turned.getexif()
    exif[0x0112] = 6  # its orientation: a quarter to the right
    turned.save(file, "PNG", exif=exif)
    encoded = base64.b64encode(file.getvalue())
    expected = library.pipeline("image-classification", model=str(task_model("vit")))(encoded.decode())
    result = serve(task_model("vit")).infer(image=file_of(encoded))
    np.testing.assert_allclose(result["score"][0], [label["score"] for label in expected], rtol=1e-3)


def test_base64_may_have_lines_and_a_prefix(serve: Any) -> None:
    model, content = serve(task_model("vit")), png(1)
    lines = base64.encodebytes(content)
    results = model.infer_many(
        [{"image": file_of(part)} for part in (content, lines, b"data:image/png;base64," + lines)]
    )
    for result in results:  # the rows of a batch may differ in their last bits
        np.testing.assert_allclose(result["score"], results[0]["score"], rtol=1e-5)


@pytest.mark.parametrize("threshold", ["nan", -0.1, 1.5])
def test_a_threshold_that_is_none_is_the_error_of_its_request_alone(serve: Any, threshold: Any) -> None:
    requests = [Request({"image": file_of(png(1))}, parameters={"threshold": entry}) for entry in (0.0, threshold)]
    good, bad = serve(task_model("yolos")).infer_many(requests)
    assert good["score"].size > 0
    with pytest.raises(ServingError, match=f"'threshold' must be from 0 to 1, found {threshold}"):
        bad.check()


def test_an_image_without_pixels_is_refused(serve: Any) -> None:
    model = serve(task_model("vit"), 'input { name: "image" data_type: TYPE_UINT8 }')
    with pytest.raises(ServingError, match=r"must have height, width and 1, 3 or 4 colours, its shape is \(0, 5, 3\)"):
        model.infer(image=np.zeros((1, 0, 5, 3), np.uint8))


def test_what_is_no_image_is_the_error_of_its_request_alone(serve: Any) -> None:
    good, bad = serve(task_model("vit")).infer_many([{"image": file_of(png(1))}, {"image": file_of(b"no image")}])
    good.check()
    with pytest.raises(
        ServingError, match=r"'image' \(8 bytes, beginning b'no image'\) could not be read as an image"
    ) as e:
        bad.check()
    assert "it is of no known format" in str(e.value)  # and not the address of a buffer


@pytest.mark.parametrize("kind", ["wav2vec2", "wav2vec2-masked", "wav2vec2bert"])
def test_speech_equals_the_pipelines(serve: Any, library: Any, kind: str) -> None:
    folder = task_model(kind)
    pipeline = library.pipeline("automatic-speech-recognition", model=str(folder))
    sounds = [sound(1), sound(2, 0.7), sound(3), sound(4, 1.3)]
    results = serve(folder).infer_many([{"audio": file_of(wav(samples))} for samples in sounds])
    answers = [texts(result["text"])[0] for result in results]
    assert answers == [pipeline(samples)["text"] for samples in sounds]
    assert len(set(answers)) > 1


def test_speech_is_written_as_the_model_does_for_each_sound_alone(serve: Any, library: Any) -> None:
    folder = task_model("whisper")
    whisper = library.WhisperForConditionalGeneration.from_pretrained(folder).eval()
    extractor = library.AutoFeatureExtractor.from_pretrained(folder)
    tokenizer = library.AutoTokenizer.from_pretrained(folder)
    sounds = [sound(1), sound(2, 0.7), sound(3, 1.9)]
    results = serve(folder).infer_many([{"audio": file_of(wav(samples))} for samples in sounds])
    answers = [texts(result["text"])[0] for result in results]
    for samples, answer in zip(sounds, answers, strict=True):
        features = extractor(samples, sampling_rate=16000, return_tensors="pt")
        assert answer == tokenizer.decode(whisper.generate(**features)[0], skip_special_tokens=True)
    assert len(set(answers)) == len(sounds)


def test_sound_may_come_as_an_array_where_the_configuration_says_so(serve: Any) -> None:
    samples = sound(5)
    encoded = serve(task_model("wav2vec2")).infer(audio=file_of(wav(samples)))
    array = serve(task_model("wav2vec2"), 'input { name: "audio" data_type: TYPE_FP32 }').infer(audio=samples[None])
    assert texts(array["text"]) == texts(encoded["text"])


def test_labels_of_sounds_equal_the_pipelines(serve: Any, library: Any) -> None:
    folder = task_model("wav2vec2-classifier")
    pipeline = library.pipeline("audio-classification", model=str(folder))
    sounds = [sound(1), sound(2)]
    results = serve(folder).infer_many([{"audio": file_of(wav(samples))} for samples in sounds])
    for result, samples in zip(results, sounds, strict=True):
        expected = pipeline(samples)
        assert texts(result["label"]) == [label["label"] for label in expected]
        np.testing.assert_allclose(result["score"][0], [label["score"] for label in expected], rtol=1e-3)


def test_what_is_no_sound_is_the_error_of_its_request_alone(serve: Any) -> None:
    model = serve(task_model("wav2vec2"))
    broken = wav(sound(1))[:30]
    good, bad, cut = model.infer_many([{"audio": file_of(part)} for part in (wav(sound(1)), b"no sound", broken)])
    good.check()
    with pytest.raises(ServingError, match="is not a WAV file; send one, or install the package soundfile"):
        bad.check()
    with pytest.raises(ServingError, match="is a WAV file that cannot be read"):
        cut.check()


@pytest.mark.parametrize("kind", ["wav2vec2", "wav2vec2-classifier", "wav2vec2bert"])
def test_a_sound_too_short_to_be_heard_is_the_error_of_its_request_alone(serve: Any, kind: str) -> None:
    good, bad = serve(task_model(kind)).infer_many([{"audio": file_of(wav(part))} for part in (sound(1), sound(1)[:9])])
    good.check()
    with pytest.raises(ServingError, match="too short for the model to hear anything: it has 9 samples") as caught:
        bad.check()
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"max_new_tokens": 0}, "'max_new_tokens' must be at least 1, found 0"),
        ({"language": "klingon"}, "the model does not take this value of 'language'"),
        ({"max_new_tokens": 10_000}, "the model does not take this value of 'max_new_tokens'"),
    ],
)
def test_a_wish_that_speech_cannot_be_written_with_is_the_requests_fault(
    serve: Any, parameters: dict[str, Any], told: str
) -> None:
    request = Request({"audio": file_of(wav(sound(1)))}, parameters=parameters)
    with pytest.raises(ServingError, match=told) as caught:
        serve(task_model("whisper")).infer(request)
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT


@pytest.mark.parametrize("rate", [0, -1, 1])
def test_a_rate_that_is_none_is_refused_before_a_sound_becomes_thousands_of_times_as_long(rate: int) -> None:
    with pytest.raises(RequestError, match=f"at least 1000 samples per second, found {rate}"):
        read_audio(sound(1), 16000, rate)


@pytest.mark.parametrize(
    ("kind", "bits", "error"), [(1, 8, 0.02), (1, 16, 1e-4), (1, 24, 1e-6), (1, 32, 1e-6), (3, 64, 0)]
)
def test_every_width_of_wav_is_read(kind: int, bits: int, error: float) -> None:
    samples = np.clip(sound(1, 0.1), -1, 1)
    np.testing.assert_allclose(read_audio(wav(samples, kind=kind, bits=bits), 16000, None), samples, atol=error + 1e-7)


def test_a_tone_stays_a_tone_at_another_rate() -> None:
    high = np.sin(np.arange(48000) / 48000 * 2 * np.pi * 440).astype(np.float32)
    low = np.sin(np.arange(16000) / 16000 * 2 * np.pi * 440)
    np.testing.assert_allclose(resampled(high, 48000, 16000), low, atol=1e-3)
    assert len(read_audio(wav(high, 48000), 16000, None)) == 16000
