"""The config.json of a model that looks, hears or speaks tells its task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_generating_models import KINDS, generating_model
from tiny_speaking_models import KINDS as SPEAKING
from tiny_speaking_models import speaking_model

from trireme.backends.transformers.settings import read_settings
from trireme.backends.transformers.source import task_of

SETTINGS, _ = read_settings({"name": "model"})


def task_in(folder: Path) -> str:
    return task_of(SETTINGS, str(folder), lambda: json.loads((folder / "config.json").read_text()))


@pytest.mark.parametrize("kind", KINDS)
def test_models_that_write_about_what_they_see_or_hear(kind: str) -> None:
    assert task_in(generating_model(kind)) == ("any-to-any" if kind == "qwen2audio" else "image-text-to-text")


@pytest.mark.parametrize("kind", SPEAKING)
def test_models_that_speak(kind: str) -> None:
    assert task_in(speaking_model(kind)) == "text-to-audio"


@pytest.mark.parametrize(
    ("architecture", "extra", "task"),
    [
        ("Qwen2VLForConditionalGeneration", {"vision_config": {}}, "image-text-to-text"),
        ("IdeficsForVisionText2Text", {"vision_config": {}}, "image-text-to-text"),
        ("FuyuForCausalLM", {"model_type": "fuyu"}, "image-text-to-text"),
        ("BlipForQuestionAnswering", {"vision_config": {}}, "visual-question-answering"),
        ("Gemma3nForConditionalGeneration", {"vision_config": {}, "audio_config": {}}, "any-to-any"),
        ("Qwen2_5OmniForConditionalGeneration", {"thinker_config": {}}, "any-to-any"),
        ("CsmForConditionalGeneration", {"model_type": "csm"}, "text-to-audio"),
        ("SeamlessM4Tv2ForTextToSpeech", {}, "text-to-audio"),
        ("T5ForConditionalGeneration", {}, "text2text-generation"),
        ("WhisperForConditionalGeneration", {"model_type": "whisper"}, "automatic-speech-recognition"),
        ("BertForQuestionAnswering", {}, "question-answering"),
        ("LlamaForCausalLM", {}, "text-generation"),
    ],
)
def test_architectures(tmp_path: Path, architecture: str, extra: dict[str, Any], task: str) -> None:
    config = {"architectures": [architecture], **extra}
    assert task_of(SETTINGS, str(tmp_path), lambda: config) == task
