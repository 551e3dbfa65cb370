"""The list of models about texts, and the names of their adapters: read beside the event loop."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trireme.core.errors import UnavailableError
from trireme.huggingface.adapters import AdapterListing
from trireme.server.text_models import adapter_folder, listing
from trireme.server.text_models.adapter_folder import AdapterFolder
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

    monkeypatch.setattr(adapter_folder, "has_adapter", wait)
    monkeypatch.setattr(adapter_folder.AdapterListing, "folders", wait)
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


def test_a_folder_that_never_answers_keeps_nobody_waiting_for_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, adapters: Path, tmp_path_factory: Any
) -> None:
    dead = tmp_path_factory.mktemp("dead")
    (dead / "greek").mkdir()
    (dead / "greek" / "adapter_config.json").write_text("{}")
    models = models_of(monkeypatch, {"base": adapters, "away": dead})
    monkeypatch.setattr(listing, "AdapterFolder", partial(AdapterFolder, patience_s=30))
    answers = threading.Event()
    answers.set()
    look = AdapterListing.folders

    def look_unless_dead(asked: AdapterListing) -> Any:
        assert asked.folder != dead or answers.wait(30)
        return look(asked)

    monkeypatch.setattr(AdapterListing, "folders", look_unless_dead)

    async def names() -> list[str]:
        return await models.of_listed(lambda found: [model.name for model in found])

    async def story() -> None:
        all_names = ["base", "base:french", "base:german", "away", "away:greek"]
        assert await names() == all_names
        models._folders[dead]._patience_s = 0.2
        answers.clear()
        many = [names() for _ in range(50)]
        assert await asyncio.wait_for(asyncio.gather(*many), 25) == [all_names] * 50
        for _ in range(50):  # at once: the folder is known not to answer
            assert await asyncio.wait_for(models.nearest("base:frensh"), 5) == "base:french"
            assert await models.find("base:french") == ListedModel("base:french", 7, "base")
            assert await models.find("away:greek") == ListedModel("away:greek", 7, "away")
        (dead / "latin").mkdir()
        (dead / "latin" / "adapter_config.json").write_text("{}")
        answers.set()
        for _ in range(3000):
            if await names() == [*all_names, "away:latin"]:
                break
            await asyncio.sleep(0.01)
        assert await names() == [*all_names, "away:latin"]

    asyncio.run(story())
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert threading.active_count() < 10


def test_what_a_late_look_finds_is_kept(monkeypatch: pytest.MonkeyPatch, adapters: Path) -> None:
    answers = threading.Event()

    def look(folder: Path, name: str) -> bool:
        assert answers.wait(30)
        return (folder / name).is_dir()

    monkeypatch.setattr(adapter_folder, "has_adapter", look)
    folder = AdapterFolder(adapters, patience_s=0.05)

    async def story() -> None:
        with pytest.raises(UnavailableError, match="does not answer: try again in a moment"):
            await folder.has("french")
        answers.set()
        await ended(folder._late)
        answers.clear()
        assert await asyncio.wait_for(folder.has("french"), 30)
        answers.set()
        await ended(folder._late)

    asyncio.run(story())
    folder.close()


def test_an_adapter_that_was_gone_is_not_there_again_because_its_folder_hangs(
    monkeypatch: pytest.MonkeyPatch, adapters: Path
) -> None:
    hangs, answers = threading.Event(), threading.Event()
    look = adapter_folder.has_adapter

    def look_if_it_answers(folder: Path, name: str) -> bool:
        assert not hangs.is_set() or answers.wait(30)
        return look(folder, name)

    monkeypatch.setattr(adapter_folder, "has_adapter", look_if_it_answers)
    folder = AdapterFolder(adapters, patience_s=30)

    async def story() -> None:
        assert sorted(await folder.names()) == ["french", "german"]
        (adapters / "french" / "adapter_config.json").unlink()
        assert not await folder.has("french")
        await folder.names()  # as they were listed a moment ago
        hangs.set()
        folder._patience_s = 0.05
        assert not await asyncio.wait_for(folder.has("french"), 30)
        assert await asyncio.wait_for(folder.has("german"), 30)
        answers.set()
        await ended(folder._late)

    asyncio.run(story())
    folder.close()


def test_a_late_look_that_fails_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, adapters: Path
) -> None:
    answers = threading.Event()

    def look(asked: AdapterListing) -> Any:
        assert answers.wait(30)
        raise OSError("stale file handle")

    monkeypatch.setattr(AdapterListing, "folders", look)
    folder = AdapterFolder(adapters, patience_s=0.05)

    async def story() -> None:
        assert await folder.names() == ()
        answers.set()
        await ended(folder._late)

    asyncio.run(story())
    folder.close()
    assert caplog.messages[0].endswith("does not answer: what is in it is not known yet")
    assert caplog.messages[1].endswith("has failed: stale file handle")


def test_many_short_looks_are_not_taken_for_one_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, adapters: Path
) -> None:
    now_s = 0.0

    def look(folder: Path, name: str) -> bool:
        nonlocal now_s
        now_s += 20
        return (folder / name).is_dir()

    monkeypatch.setattr(adapter_folder, "has_adapter", look)
    folder = AdapterFolder(adapters, patience_s=30, clock=lambda: now_s)

    async def story() -> None:
        assert await asyncio.gather(*(folder.has("german") for _ in range(40))) == [True] * 40

    asyncio.run(story())
    folder.close()
    assert not caplog.records


def test_a_look_that_hangs_is_known_also_where_who_asked_has_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, adapters: Path
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(adapter_folder, "has_adapter", lambda folder, name: answers.wait(30))
    folder = AdapterFolder(adapters, patience_s=0.05)

    async def story() -> None:
        asked = asyncio.create_task(folder.has("german"))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait((asked,))
        with pytest.raises(UnavailableError):
            await folder.has("german")
        answers.set()
        await ended(folder._late)

    asyncio.run(story())
    folder.close()
    assert len(caplog.records) == 1


async def ended(look: asyncio.Future[Any] | None) -> None:
    assert look is not None
    await asyncio.wait((look,), timeout=30)
    await asyncio.sleep(0)


def test_the_thread_of_a_folder_ends_with_its_last_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    models = models_of(monkeypatch, {"base": tmp_path / "one"})
    (serving,) = models._registry.models.serving()

    async def story() -> None:
        assert await models.find("base:french") is None
        (first,) = models._folders.values()
        serving.adapters_folder = tmp_path / "two"  # type: ignore[misc]
        assert await models.find("base:french") is None
        assert list(models._folders) == [tmp_path / "two"]
        assert first._is_closed

    asyncio.run(story())
