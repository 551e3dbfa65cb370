"""Speech and music equal what the library's pipeline gives for the same text."""

from __future__ import annotations

import base64
import functools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from payloads import text
from tiny_speaking_models import RATE, SPEAKER_SIZE, speaking_model

from trireme.backends.transformers.sound.audio import read_audio, wav_file
from trireme.core.errors import ServingError
from trireme.testing import Request

pytestmark = pytest.mark.filterwarnings("ignore")

SPEAKER = np.linspace(-1, 1, SPEAKER_SIZE, dtype=np.float32)
MUSIC = {"max_new_tokens": 12, "do_sample": False}


@functools.cache
def pipeline_of(kind: str) -> Any:
    transformers = pytest.importorskip("transformers")
    folder = speaking_model(kind)
    extra = {}
    if kind == "speecht5":
        extra["vocoder"] = transformers.SpeechT5HifiGan.from_pretrained(folder / "vocoder")
    return transformers.pipeline("text-to-audio", model=str(folder), **extra)


def seeded(pipeline: Any, words: str, seed: int, **given: Any) -> Any:
    import torch

    torch.manual_seed(seed)
    found = pipeline(words, **given)
    assert found["sampling_rate"] == RATE
    return found["audio"]


@pytest.mark.parametrize("words", ["hello there", "the sea is calm"])
@pytest.mark.parametrize(
    ("kind", "given", "inputs", "options"),
    [
        ("vits", {}, {}, {}),
        ("vits", {"forward_params": {"speaker_id": 2}}, {}, {"speaker_id": 2}),
        ("bark", {}, {}, {}),
        ("bark", {"forward_params": {"do_sample": True}}, {}, {"do_sample": True}),
        ("speecht5", {}, {"speaker_embeddings": SPEAKER[None]}, {}),
        ("musicgen", {"generate_kwargs": MUSIC}, {}, MUSIC),
        ("musicgen", {}, {}, {}),
        ("musicgen-stereo", {"generate_kwargs": MUSIC}, {}, MUSIC),
    ],
)
def test_sound_equals_the_pipelines(
    served: Any, kind: str, given: dict[str, Any], inputs: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    import torch

    if kind == "speecht5":
        given = {"forward_params": {"speaker_embeddings": torch.from_numpy(SPEAKER)[None]}}
    expected = seeded(pipeline_of(kind), words, 7, **given)
    model = served(speaking_model(kind))
    result = model.infer(Request({"text_input": text(words), **inputs}, parameters={**options, "seed": 7}))
    np.testing.assert_allclose(result["waveform"][0], expected, rtol=1e-4, atol=1e-6)
    assert expected.shape[-1] > 100
    assert np.ptp(expected) > 0
    assert result["sampling_rate"].tolist() == [[RATE]]
    heard = read_audio(result["audio"][0, 0], RATE, None)
    channels = expected if expected.ndim == 1 else expected.mean(axis=0)
    np.testing.assert_allclose(heard, np.clip(channels, -1, 1), atol=1e-4)


def test_music_in_a_batch_is_that_of_each_text_alone(serve: Any) -> None:
    model = serve(speaking_model("musicgen"), task="text-to-speech", **MUSIC)
    words = ["Hello", "The quick brown fox jumps over the lazy dog.", "This is a test."]
    requests = [{"text_input": text(entry)} for entry in words]
    together = [result["waveform"] for result in model.infer_many(requests)]
    alone = [model.infer(request)["waveform"] for request in requests]
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    rows = model.infer(text_input=text(*words))
    np.testing.assert_allclose(rows["waveform"], np.concatenate(alone), rtol=1e-4, atol=1e-6)


def test_speech_has_the_length_of_its_own_text_in_any_company(serve: Any) -> None:
    model = serve(speaking_model("speecht5"))
    words = ["hello", "a captain sails a ship"]
    requests = [{"text_input": text(entry), "speaker_embeddings": SPEAKER[None]} for entry in words]
    together = [result["waveform"] for result in model.infer_many(requests)]
    for result, request in zip(together, requests, strict=True):
        np.testing.assert_allclose(result, model.infer(request)["waveform"], rtol=1e-4, atol=1e-6)
    assert together[0].shape != together[1].shape


def test_the_file_comes_in_base64_where_that_is_asked_for(serve: Any) -> None:
    model = serve(speaking_model("musicgen"), **MUSIC)
    plain = model.infer(text_input=text("Hello"))
    encoded = model.infer(Request({"text_input": text("Hello")}, parameters={"audio_encoding": "base64"}))
    assert base64.b64decode(encoded["audio"][0, 0]) == plain["audio"][0, 0]


def test_a_file_beside_the_model_is_its_voice(serve: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(speaking_model("speecht5"), tmp_path / "files")
    np.save(folder / "speaker_embeddings.npy", SPEAKER)
    spoken = serve(folder).infer(text_input=text("hello"))
    named = serve(speaking_model("speecht5")).infer(text_input=text("hello"), speaker_embeddings=SPEAKER[None])
    np.testing.assert_allclose(spoken["waveform"], named["waveform"], rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "inputs", "options", "message"),
    [
        ("speecht5", {}, {}, "input 'speaker_embeddings' is missing: the model speaks with the voice of a vector of 8"),
        ("speecht5", {"speaker_embeddings": SPEAKER[None, :3]}, {}, "must be 8 finite numbers, found 3"),
        ("speecht5", {"speaker_embeddings": SPEAKER[None]}, {"top_k": 2}, "the model does not take top_k"),
        ("vits", {"speaker_embeddings": SPEAKER[None]}, {}, "the model takes no 'speaker_embeddings'"),
        ("vits", {}, {"speaker_id": 3}, "'speaker_id' is 3, and the model has 3 speakers"),
        ("vits", {"text_input": text(" ")}, {}, "the text is empty: there is nothing to say"),
        ("bark", {}, {"voice_preset": "/etc/passwd"}, "the model has no 'voice_preset' of the name '/etc/passwd'"),
        ("vits", {}, {"audio_encoding": "mp3"}, "'audio_encoding' must be raw or base64, found 'mp3'"),
        ("musicgen", {}, {"max_new_tokens": 0}, "'max_new_tokens' must be at least 1, found 0"),
        ("musicgen", {}, {"max_new_tokens": 10**9}, "'max_new_tokens' must be at most 32768 for this model"),
    ],
)
def test_what_is_wrong_is_said(
    served: Any, kind: str, inputs: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    request = Request({"text_input": text("hello"), **inputs}, parameters=options)
    with pytest.raises(ServingError, match=message):
        served(speaking_model(kind)).infer(request)


def test_a_model_without_its_vocoder_says_where_to_put_it(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = shutil.copytree(speaking_model("speecht5"), tmp_path / "files")
    shutil.rmtree(folder / "vocoder")
    with pytest.raises(
        ServingError, match=r"gives spectrograms, and the vocoder .* put a vocoder's files into '.*/vocoder'"
    ):
        serve(folder)


def test_a_cancelled_text_is_not_spoken(serve: Any) -> None:
    model = serve(speaking_model("vits"))
    (result,) = model.infer_many([Request({"text_input": text("hello")}, is_cancelled=True)])
    assert result.error is not None or result["waveform"].size == 0


def test_a_wav_file_has_its_channels_and_is_never_louder_than_it_can_be() -> None:
    samples = np.array([[0.0, 0.5, 2.0], [0.0, -0.5, -2.0]], np.float32)
    content = wav_file(samples, 8000)
    assert content[:4] == b"RIFF"
    assert len(content) == 44 + samples.size * 2
    np.testing.assert_allclose(read_audio(content, 8000, None), [0.0, 0.0, 0.0], atol=1e-4)
    np.testing.assert_allclose(read_audio(wav_file(samples[0], 8000), 8000, None), [0.0, 0.5, 1.0], atol=1e-4)
