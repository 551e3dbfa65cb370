"""Adapters are read once, kept while there is room, and leave when nobody uses them."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny_adapters import cut_off, executor_of, write_adapter, write_adapters
from tiny_language_models import TinyModel

from trireme.llm.adapters.adapter import Adapter, AdapterError, UnknownAdapterError
from trireme.llm.adapters.store import AdapterStore
from trireme.llm.admission_errors import EngineClosedError, NotWantedError
from trireme.llm.executors.numpy.executor import NumpyExecutor
from trireme.llm.options import EngineOptions

Models = Callable[[str], TinyModel]


@pytest.fixture
def folder(tiny_model: Models, tmp_path: Path) -> Path:
    write_adapters(tiny_model("llama"), tmp_path, ("french", "german", "polish"))
    (tmp_path / "notes").mkdir()
    return tmp_path


@pytest.fixture
def executor(tiny_model: Models) -> NumpyExecutor:
    return executor_of(tiny_model("llama"))


@pytest.fixture
def store(executor: NumpyExecutor, folder: Path) -> Iterator[AdapterStore]:
    made = AdapterStore(executor.spec, EngineOptions(adapters=folder, max_adapters=2), executor)
    yield made
    made.close()


def test_one_that_is_kept_is_not_read_again(store: AdapterStore) -> None:
    assert store.take_if_kept("french") is None
    first = store.take("french")
    assert store.take("french") is first
    assert store.take_if_kept("french") is first


def test_the_longest_unused_leaves(store: AdapterStore) -> None:
    for name in ("french", "german", "french", "polish"):
        store.give_back(store.take(name))
    assert store.kept_names == ["french", "polish"]


def test_one_in_use_stays(store: AdapterStore) -> None:
    store.take("french")
    store.give_back(store.take("german"))
    store.give_back(store.take("polish"))
    assert store.kept_names == ["french", "polish"]


def test_who_finds_all_in_use_waits_until_one_is_given_back(store: AdapterStore) -> None:
    french, german, heard = store.take("french"), store.take("german"), threading.Event()

    def ask() -> None:
        store.take("polish")
        heard.set()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    assert not heard.wait(0.2)
    assert store.take_if_kept("german") is german
    assert store.take_if_kept("french") is None  # which leaves next: or those who want it could keep others out
    store.give_back(german)
    assert not heard.wait(0.1)
    store.give_back(french)
    assert heard.wait(10)
    assert sorted(store.kept_names) == ["german", "polish"]
    assert store.take_if_kept("german") is german
    thread.join(10)


def test_another_that_is_free_sooner_leaves_in_place_of_the_one_that_was_to(store: AdapterStore) -> None:
    french, german = store.take("french"), store.take("german")
    thread = threading.Thread(target=store.take, args=("polish",), daemon=True)
    thread.start()
    until(lambda: store._kept["french"].is_leaving)
    store.give_back(german)
    thread.join(10)
    assert store.kept_names == ["french", "polish"]
    assert store.take_if_kept("french") is french


def test_who_is_not_waited_for_any_more_leaves_the_place_to_the_next(store: AdapterStore) -> None:
    french, german, is_wanted = store.take("french"), store.take("german"), [True]
    told: list[BaseException] = []

    def ask() -> None:
        try:
            store.take("polish", lambda: is_wanted[0])
        except NotWantedError as error:
            told.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    until(lambda: store._kept["french"].is_leaving)
    assert store.take_if_kept("french") is None
    is_wanted[0] = False
    store.look_again()
    thread.join(60)
    assert len(told) == 1
    assert store.take_if_kept("french") is french  # which nobody needs to leave any more
    store.give_back(german)
    assert store.take("polish").name == "polish"
    assert sorted(store.kept_names) == ["french", "polish"]


def test_it_is_known_which_names_there_are(store: AdapterStore, executor: NumpyExecutor, folder: Path) -> None:
    names = (
        "french",
        "polish",
        "frensh",
        "notes",
        "",
        ".",
        "..",
        f"../{folder.name}/french",
        "french/",
        "a\0b",
        "x" * 999,
    )
    assert [name for name in names if store.has(name)] == ["french", "polish"]
    named = AdapterStore(executor.spec, EngineOptions(adapters={"fr": folder / "french"}), executor)
    assert named.has("fr")
    assert not named.has("french")
    assert not AdapterStore(executor.spec, EngineOptions(), executor).has("french")


def test_several_who_ask_at_once_share_one_reading(store: AdapterStore) -> None:
    found = []
    threads = [threading.Thread(target=lambda: found.append(store.take("french"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(found) == 8
    assert len(set(found)) == 1


def test_the_end_refuses_those_who_wait(store: AdapterStore) -> None:
    store.take("french"), store.take("german")
    errors: list[str] = []

    def ask() -> None:
        try:
            store.take("polish")
        except EngineClosedError as error:
            errors.append(str(error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    until(lambda: store._kept["french"].is_leaving)
    store.close()
    thread.join(10)
    assert errors == ["the engine was closed"]


def test_behind_the_end_nothing_is_read_to_be_refused(store: AdapterStore, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr("trireme.llm.adapters.store.read_adapter", lambda name, folder, spec: read.append(name))
    store.close()
    with pytest.raises(EngineClosedError, match="the engine was closed"):
        store.take("french")
    assert read == []


def test_one_that_is_placed_while_the_end_comes_is_not_kept(
    store: AdapterStore, executor: NumpyExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = executor.place_adapter

    def place_late(adapter: Adapter) -> object:
        store.close()
        return place(adapter)

    monkeypatch.setattr(executor, "place_adapter", place_late)
    with pytest.raises(EngineClosedError):
        store.take("french")
    assert store.kept_names == []


def test_names_that_nobody_has(store: AdapterStore, executor: NumpyExecutor) -> None:
    with pytest.raises(UnknownAdapterError, match="no adapter 'frensh'; did you mean 'french'"):
        store.take("frensh")
    with pytest.raises(UnknownAdapterError, match="there are: french, german, polish"):
        store.take("../..")
    with pytest.raises(UnknownAdapterError):
        store.take("notes")
    with pytest.raises(UnknownAdapterError, match="the model has none"):
        AdapterStore(executor.spec, EngineOptions(), executor).take("french")


def test_many_names_that_nobody_has_and_one_that_somebody_has_take_one_listing(
    executor: NumpyExecutor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[Path] = []
    whole = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: [listed.append(path), whole(path)][1])
    store = AdapterStore(executor.spec, EngineOptions(adapters=folder), executor)
    began = time.monotonic()
    for number in range(20):
        with pytest.raises(UnknownAdapterError, match="there are: french, german, polish"):
            store.take(f"nobody{number}")
    assert store.take("french").name == "french"
    assert listed.count(folder) <= 1 + (time.monotonic() - began)  # of seconds


def test_one_that_came_later_is_found(store: AdapterStore, folder: Path) -> None:
    shutil.copytree(folder / "french", folder / "breton")
    assert store.take("breton").salt != store.take("french").salt


def test_other_files_have_another_salt(store: AdapterStore, folder: Path, tiny_model: Models) -> None:
    before = store.take("french")
    store.give_back(before)
    for name in ("german", "polish"):
        store.give_back(store.take(name))
    shutil.rmtree(folder / "french")
    write_adapter(tiny_model("llama"), folder / "french", seed=9)
    assert store.take("french").salt != before.salt


def test_one_that_does_not_fit_takes_no_room(store: AdapterStore, folder: Path) -> None:
    store.give_back(store.take("german"))
    store.give_back(store.take("polish"))
    whole = (folder / "french" / "adapter_model.safetensors").read_bytes()
    cut_off(folder / "french")
    with pytest.raises(AdapterError):
        store.take("french")
    assert store.kept_names == ["german", "polish"]
    (folder / "french" / "adapter_model.safetensors").write_bytes(whole)
    store.take("french")


def test_named_folders(executor: NumpyExecutor, folder: Path) -> None:
    store = AdapterStore(
        executor.spec, EngineOptions(adapters={"fr": folder / "french", "gone": folder / "gone"}), executor
    )
    assert store.take("fr").name == "fr"
    with pytest.raises(AdapterError, match=r"adapter_config\.json cannot be read"):
        store.take("gone")


def test_an_executor_that_cannot_is_refused(executor: NumpyExecutor, folder: Path) -> None:
    with pytest.raises(AdapterError, match="not by object: use the device cpu, cuda or numpy"):
        AdapterStore(executor.spec, EngineOptions(adapters=folder), object())
    AdapterStore(executor.spec, EngineOptions(), object())


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)
