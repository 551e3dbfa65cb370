"""The list of models about texts, and the names of their adapters: read beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trireme.server.text_models import listing
from trireme.server.text_models.listing import ListedModel, TextModels


def models_of(monkeypatch: pytest.MonkeyPatch, folders: dict[str, Path | None]) -> TextModels:
    """One that serves, of each name, with the adapters in its folder."""
    monkeypatch.setattr(listing, "_is_about_texts", lambda model: True)
    serving = [
        SimpleNamespace(name=name, loaded_s=7, adapters_folder=folder, config=None) for name, folder in folders.items()
    ]
    registry: Any = SimpleNamespace(models=SimpleNamespace(serving=lambda: serving))
    health: Any = SimpleNamespace(check_running=lambda: None)
    return TextModels(registry, health)


@pytest.fixture
def adapters(tmp_path: Path) -> Path:
    for name in ("french", "german"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text("{}")
    return tmp_path


def test_adapters_stand_behind_their_model(monkeypatch: pytest.MonkeyPatch, adapters: Path) -> None:
    models = models_of(monkeypatch, {"plain": None, "base": adapters})
    found = asyncio.run(models.of_listed(list))
    assert [(model.name, model.parent) for model in found] == [
        ("plain", None),
        ("base", None),
        ("base:french", "base"),
        ("base:german", "base"),
    ]


def test_names_are_found_and_those_that_are_meant(monkeypatch: pytest.MonkeyPatch, adapters: Path) -> None:
    models = models_of(monkeypatch, {"base": adapters})

    async def story() -> None:
        assert await models.find("base:french") == ListedModel("base:french", 7, "base")
        assert await models.find("base") == ListedModel("base", 7)
        assert await models.find("base:dutch") is None
        assert await models.nearest("base:frensh") == "base:french"

    asyncio.run(story())


@pytest.mark.parametrize("asked", ["list", "find", "nearest"])
def test_a_folder_that_does_not_answer_holds_up_nobody_else(
    monkeypatch: pytest.MonkeyPatch, adapters: Path, asked: str
) -> None:
    models = models_of(monkeypatch, {"base": adapters})
    answers = threading.Event()

    def wait(*told: Any) -> Any:
        assert answers.wait(30), "the event loop was held up"
        return {}

    monkeypatch.setattr(listing, "has_adapter", wait)
    monkeypatch.setattr(listing.AdapterListing, "folders", wait)
    asks = {"list": lambda: models.of_listed(len), "find": lambda: models.find("base:x")}
    asks["nearest"] = lambda: models.nearest("x")

    async def story() -> None:
        waiting = asyncio.create_task(asks[asked]())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        answers.set()
        assert await asyncio.wait_for(waiting, 30) in (1, False, None)

    asyncio.run(story())
