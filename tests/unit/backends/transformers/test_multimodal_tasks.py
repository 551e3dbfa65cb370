"""Which task a model of several kinds of input is for, and how its tensors look."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from documents import WORDS, document, page
from payloads import sound, text, wav
from tiny_multimodal_models import multimodal_model

from trireme.backends.transformers.completion import complete
from trireme.backends.transformers.settings import read_settings
from trireme.backends.transformers.source import task_of
from trireme.backends.transformers.tasks import TASKS
from trireme.testing import Request

pytestmark = pytest.mark.filterwarnings("ignore")

SETTINGS, _ = read_settings({"name": "m"})
KINDS = {
    "clip": ("zero-shot-image-classification", ["image", "candidate_labels"], ["label", "score"]),
    "siglip": ("zero-shot-image-classification", ["image", "candidate_labels"], ["label", "score"]),
    "owlvit": ("zero-shot-object-detection", ["image", "candidate_labels"], ["label", "score", "box"]),
    "grounding": ("zero-shot-object-detection", ["image", "candidate_labels"], ["label", "score", "box"]),
    "clap": ("zero-shot-audio-classification", ["audio", "candidate_labels"], ["label", "score"]),
    "layoutlm": (
        "document-question-answering",
        ["question", "image", "boxes", "words"],
        ["answer", "score", "start", "end"],
    ),
    "layoutlmv3": (
        "document-question-answering",
        ["question", "image", "boxes", "words"],
        ["answer", "score", "start", "end"],
    ),
    "donut": (
        "document-question-answering",
        ["question", "image", "boxes", "words"],
        ["answer", "score", "start", "end"],
    ),
    "tapas": (
        "table-question-answering",
        ["table", "query", "previous_queries", "stop"],
        ["answer", "coordinates", "cells", "aggregator"],
    ),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_task_follows_from_the_files(kind: str) -> None:
    from trireme.backends.python.pb_utils.model_config import ModelConfig

    folder = multimodal_model(kind)
    task, inputs, outputs = KINDS[kind]
    assert task_of(SETTINGS, str(folder), lambda: json.loads((folder / "config.json").read_text())) == task
    message = {"name": "m", "max_batch_size": 0, "input": [], "output": []}
    config = complete(ModelConfig(json.dumps(message)), TASKS[task], SETTINGS).as_dict()
    assert [entry["name"] for entry in config["input"]] == inputs
    assert [entry["name"] for entry in config["output"]] == outputs


@pytest.mark.parametrize(
    ("architecture", "task"),
    [
        ("ChineseCLIPModel", "zero-shot-image-classification"),
        ("AltCLIPModel", "zero-shot-image-classification"),
        ("Siglip2Model", "zero-shot-image-classification"),
        ("AlignModel", "zero-shot-image-classification"),
        ("Blip2ForImageTextRetrieval", "zero-shot-image-classification"),
        ("Owlv2ForObjectDetection", "zero-shot-object-detection"),
        ("MMGroundingDinoForObjectDetection", "zero-shot-object-detection"),
        ("LayoutLMv2ForQuestionAnswering", "document-question-answering"),
        ("DetrForObjectDetection", "object-detection"),
        ("BertForQuestionAnswering", "question-answering"),
        ("BertModel", "feature-extraction"),
    ],
)
def test_the_task_follows_from_the_architecture(architecture: str, task: str, tmp_path: Path) -> None:
    config = {"architectures": [architecture], "vocab_size": 9, "max_position_embeddings": 9}
    assert task_of(SETTINGS, str(tmp_path), lambda: config) == task


@pytest.mark.parametrize("kind", ["clip", "siglip", "owlvit", "grounding", "clap", "layoutlm", "donut"])
@pytest.mark.parametrize("parameters", [{"dtype": "bfloat16"}, {"static_shapes": "8,24"}])
def test_other_types_and_fixed_shapes_are_served(serve: Any, kind: str, parameters: dict[str, Any]) -> None:
    labels = {"candidate_labels": text("ship, red sea, a good captain")}
    requests = {
        "clap": [{"audio": text("x"), **labels} for _ in range(3)],
        "layoutlm": [document(WORDS), document(WORDS[:3]), document(WORDS * 2)],
        "donut": [{"image": page(seed), "question": text("where is it ?")} for seed in range(3)],
    }.get(kind, [{"image": page(seed), **labels} for seed in range(3)])
    if kind == "clap":
        for request, seed in zip(requests, range(3), strict=True):
            request["audio"][0, 0] = wav(sound(seed))
    plain = serve(multimodal_model(kind)).infer_many([Request(inputs) for inputs in requests])
    other = serve(multimodal_model(kind), **parameters).infer_many([Request(inputs) for inputs in requests])
    for result, expected in zip(other, plain, strict=True):
        result.check()
        if "dtype" not in parameters:
            assert result["score"] == pytest.approx(expected["score"], rel=1e-3)
