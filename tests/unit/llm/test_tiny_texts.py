"""What tiny models wrote before is believed only where one look at it confirms it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny_language_models
from tiny_language_models import PROMPTS, build


def test_a_text_that_is_known_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny_language_models, "TEXTS", tmp_path / "texts")
    model = build("llama", tmp_path / "model")
    written = model.continuation(PROMPTS[1], 8)
    (place,) = (tmp_path / "texts").iterdir()
    assert json.loads(place.read_text()) == written
    monkeypatch.setattr(type(model), "_written", None)
    assert model.continuation(PROMPTS[1], 8) == written


@pytest.mark.parametrize("place", [0, 3, 7])
def test_a_text_that_is_another_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    monkeypatch.setattr(tiny_language_models, "TEXTS", tmp_path / "texts")
    model = build("llama", tmp_path / "model")
    written = model.continuation(PROMPTS[1], 8)
    (file,) = (tmp_path / "texts").iterdir()
    wrong = [*written]
    wrong[place] = (wrong[place] + 1) % tiny_language_models.VOCAB
    file.write_text(json.dumps(wrong))
    assert model.continuation(PROMPTS[1], 8) == written
    assert json.loads(file.read_text()) == written
