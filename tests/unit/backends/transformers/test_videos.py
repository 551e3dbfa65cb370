"""Labels of videos, whatever the frames come in."""

from __future__ import annotations

import base64
import importlib.util
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from payloads import file_of, png, texts
from tiny_image_models import image_model

from trireme.core.errors import ErrorKind, ServingError
from trireme.testing import Request

pytestmark = pytest.mark.filterwarnings("ignore")

ARRAY = 'input { name: "video" data_type: TYPE_UINT8 }'
HAS_AV = importlib.util.find_spec("av") is not None
HAS_TORCHVISION = importlib.util.find_spec("torchvision") is not None


@pytest.fixture(scope="module")
def library() -> Any:
    return pytest.importorskip("transformers")


def frames(seed: int, count: int = 12, height: int = 40, width: int = 48) -> NDArray[np.uint8]:
    """A square of one colour that moves over another, so that no encoder changes much."""
    colours = np.random.default_rng(seed).integers(0, 255, (2, 3), dtype=np.uint8)
    video = np.empty((count, height, width, 3), dtype=np.uint8)
    video[:] = colours[0]
    for index, frame in enumerate(video):
        frame[10 : 10 + 4 * (seed + 1), 2 * index : 2 * index + 16] = colours[1]
    return video


def gif(video: NDArray[np.uint8]) -> bytes:
    """Frames as an animated picture without loss."""
    from PIL import Image

    file = io.BytesIO()
    first, *rest = (Image.fromarray(frame) for frame in video)
    first.save(file, "WEBP", save_all=True, append_images=rest, lossless=True)
    return file.getvalue()


def expected_labels(library: Any, chosen: NDArray[np.uint8]) -> tuple[list[str], NDArray[Any]]:
    """What the model says of these frames alone, as the library's pipeline turns it."""
    import torch

    folder = image_model("videomae")
    model = library.AutoModelForVideoClassification.from_pretrained(folder).eval()
    processor = library.AutoImageProcessor.from_pretrained(folder)
    with torch.no_grad():
        scores = model(**processor(list(chosen), return_tensors="pt")).logits[0].softmax(-1)
    best = scores.topk(len(scores))
    return [model.config.id2label[index] for index in best.indices.tolist()], best.values.numpy()


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ({"frame_sampling_rate": 1}, [0, 1, 2, 3]),
        ({"frame_sampling_rate": 2}, [0, 2, 4, 7]),
        ({"frame_sampling_rate": 3}, [0, 3, 7, 11]),
    ],
)
def test_labels_of_videos_equal_the_librarys(
    serve: Any, library: Any, options: dict[str, Any], chosen: list[int]
) -> None:
    videos = [frames(1), frames(2), frames(3, height=64, width=50)]
    model = serve(image_model("videomae"), ARRAY, **options)  # which says nothing of its task
    assert model.config["input"][0]["dims"] == [-1, -1, -1, 3]
    results = model.infer_many([{"video": video[None]} for video in videos])
    for result, video in zip(results, videos, strict=True):
        labels, scores = expected_labels(library, video[chosen])
        assert texts(result["label"]) == labels
        np.testing.assert_allclose(result["score"][0], scores, rtol=1e-3)
    assert len({result["score"].tobytes() for result in results}) == len(videos)


def test_a_video_may_be_a_file_or_several_pictures(serve: Any) -> None:
    from PIL import Image

    video = frames(4, count=4)
    pictures = []
    for frame in video:
        file = io.BytesIO()
        Image.fromarray(frame).save(file, "PNG")
        pictures.append(file.getvalue())
    model = serve(image_model("videomae"))
    array = serve(image_model("videomae"), ARRAY).infer(video=video[None])
    given = [
        np.array([pictures], dtype=np.object_),
        np.array([[base64.b64encode(part) for part in pictures]], dtype=np.object_),
        file_of(gif(video)),
        file_of(base64.b64encode(gif(video))),
    ]
    for result in model.infer_many([{"video": entry} for entry in given]):
        assert texts(result["label"]) == texts(array["label"])
        np.testing.assert_allclose(result["score"], array["score"], rtol=1e-3)


def test_labels_are_as_many_and_of_the_function_that_is_wanted(serve: Any) -> None:
    wishes: list[dict[str, Any]] = [{}, {"function_to_apply": "none"}, {"top_k": 1}]
    model = serve(image_model("videomae"), ARRAY)
    results = model.infer_many([Request({"video": frames(1)[None]}, parameters=options) for options in wishes])
    shares, logits, best = (result["score"][0] for result in results)
    np.testing.assert_allclose(np.exp(logits) / np.exp(logits).sum(), shares, rtol=1e-3)
    assert best.tolist() == shares[:1].tolist()


@pytest.mark.parametrize(
    ("count", "options", "told"),
    [
        (3, {}, "'video' has 3 frames, 4 are needed: 'num_frames' is 4 and 'frame_sampling_rate' 1"),
        (12, {"frame_sampling_rate": 4}, "'video' has 12 frames, 16 are needed"),
        (12, {"num_frames": 0}, "'num_frames' must be from 1 to 1024, found 0"),
        (12, {"num_frames": 6}, r"does not take this value of 'num_frames' \(6\), it is made for 4"),
        (12, {"frame_sampling_rate": 0.5}, "'frame_sampling_rate' must be a whole number, found 0.5"),
        (12, {"function_to_apply": "tanh"}, "'function_to_apply' must be one of softmax, sigmoid, none"),
    ],
)
def test_a_video_or_a_wish_that_does_not_fit_is_its_requests_fault(
    serve: Any, count: int, options: dict[str, Any], told: str
) -> None:
    requests = [
        Request({"video": frames(1)[None]}),
        Request({"video": frames(1, count)[None]}, parameters=options),
    ]
    good, bad = serve(image_model("videomae"), ARRAY).infer_many(requests)
    good.check()
    with pytest.raises(ServingError, match=told) as caught:
        bad.check()
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT


def test_an_array_that_is_no_video_is_refused(serve: Any) -> None:
    model = serve(image_model("videomae"), ARRAY)
    with pytest.raises(
        ServingError, match=r"must have frames, height, width and 3 colours, its shape is \(4, 0, 5, 3\)"
    ):
        model.infer(video=np.zeros((1, 4, 0, 5, 3), np.uint8))


def test_a_picture_that_is_none_among_others_is_the_error_of_its_request(serve: Any) -> None:
    files = np.array([[png(1), png(2), b"no image", png(3)]], dtype=np.object_)
    with pytest.raises(ServingError, match=r"'video' \(8 bytes, beginning b'no image'\) could not be read as an image"):
        serve(image_model("videomae")).infer(video=files)


def test_what_is_no_video_is_told_with_what_to_do(serve: Any) -> None:
    told = "could not be read as a video" if HAS_AV else r"needs the package av to be read.*pip install av"
    with pytest.raises(ServingError, match=rf"'video' \(8 bytes, beginning b'no video'\) {told}") as caught:
        serve(image_model("videomae")).infer(video=file_of(b"no video"))
    assert caught.value.kind is ErrorKind.INVALID_ARGUMENT


def film(video: NDArray[np.uint8], kind: str = "mp4") -> bytes:
    """Frames as a file of a camera."""
    import av

    file = io.BytesIO()
    with av.open(file, "w", format=kind) as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.height, stream.width, stream.pix_fmt = video.shape[1], video.shape[2], "yuv420p"
        stream.bit_rate = 4_000_000
        for frame in video:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


@pytest.mark.skipif(not HAS_AV, reason="the package av is not installed")
def test_a_film_is_read_frame_by_frame(serve: Any) -> None:
    import av

    content = film(frames(1))
    with av.open(io.BytesIO(content)) as container:
        read = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
    options = {"frame_sampling_rate": 3}
    array = serve(image_model("videomae"), ARRAY, **options).infer(video=read[None])
    result = serve(image_model("videomae"), **options).infer(video=file_of(content))
    assert texts(result["label"]) == texts(array["label"])
    np.testing.assert_allclose(result["score"], array["score"], rtol=1e-3)


@pytest.mark.skipif(not HAS_AV or HAS_TORCHVISION, reason="the library decodes films with av, and without torchvision")
@pytest.mark.parametrize("options", [{}, {"frame_sampling_rate": 2}])
def test_a_film_equals_the_pipelines(serve: Any, library: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    pipeline = library.pipeline("video-classification", model=str(image_model("videomae")))
    model = serve(image_model("videomae"), **options)
    file = tmp_path / "film.mp4"
    for seed in (1, 2):
        file.write_bytes(film(frames(seed)))
        expected = pipeline(str(file), **options)
        result = model.infer(video=file_of(file.read_bytes()))
        assert texts(result["label"]) == [label["label"] for label in expected]
        np.testing.assert_allclose(result["score"][0], [label["score"] for label in expected], rtol=1e-3)
