"""THREADS: when a worker lets torch compute with another number of threads."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from importlib.machinery import BuiltinImporter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from trireme.backends.python.channel import messages
from trireme.backends.python.compat import import_hook
from trireme.backends.python.worker.torch_threads import TorchThreads

Start = Callable[..., Any]
MODEL = """
class TritonPythonModel:
    {keyword} execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]
"""


class Torch(types.ModuleType):
    """As much of it as has to do with threads."""

    def __init__(self, count: int) -> None:
        super().__init__("torch")
        self.count = count

    def get_num_threads(self) -> int:
        return self.count

    def set_num_threads(self, count: int) -> None:
        self.count = count


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    """In a process that was started with four threads."""
    torch = Torch(4)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


@pytest.mark.parametrize("keyword", ["def", "async def"])
def test_torch_gets_each_share_that_the_server_sends(
    serving: Start, form: Callable[..., Any], torch: Torch, keyword: str
) -> None:
    host = serving(MODEL.format(keyword=keyword))
    for count in (1, 2):
        host.send((messages.THREADS, count))
        host.execute(form(1))
        host.results()
        assert torch.count == count


def test_a_number_that_the_model_has_set_stays(serving: Start, form: Callable[..., Any], torch: Torch) -> None:
    torch.count = 2
    host = serving(MODEL.format(keyword="def"))
    for count in (1, 2, 3):  # the second is what the model has, by chance
        host.send((messages.THREADS, count))
    host.execute(form(1))
    host.results()
    assert torch.count == 2


def test_torch_is_not_imported_for_it(
    serving: Start, form: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, torch: Torch
) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    host = serving(MODEL.format(keyword="def"))
    host.send((messages.THREADS, 1))
    host.execute(form(1))
    host.results()
    assert "torch" not in sys.modules
    monkeypatch.setitem(sys.modules, "torch", torch)  # the model has, meanwhile, with the threads of the environment
    host.send((messages.THREADS, 2))
    host.execute(form(1))
    host.results()
    assert torch.count == 2


CAPPED = """
count = 3  # of the four in the environment: there are no more physical cores

def get_num_threads():
    return count

def set_num_threads(wanted):
    global count
    count = wanted
"""


@pytest.fixture
def threads(torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TorchThreads:
    """Waits for the import of a torch that takes fewer threads than the environment says."""
    (tmp_path / "torch.py").write_text(CAPPED)
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    threads = TorchThreads()
    threads.watch_import()
    return threads


def test_threads_that_torch_chose_itself_are_shared_out_and_never_become_more(threads: TorchThreads) -> None:
    assert find_spec("torch") is not None  # as libraries ask whether it is installed, before anybody imports it
    torch = importlib.import_module("torch")
    for given, expected in ((4, 3), (2, 2), (1, 1), (4, 3)):
        threads.set_count(given)
        assert torch.get_num_threads() == expected


def test_a_number_set_after_the_import_is_the_models_own(threads: TorchThreads) -> None:
    torch = importlib.import_module("torch")
    torch.set_num_threads(2)
    threads.set_count(1)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_a_number_that_the_model_puts_into_the_environment_is_its_own(
    threads: TorchThreads, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "3")
    torch = importlib.import_module("torch")
    for count in (1, 4):
        threads.set_count(count)
        assert torch.get_num_threads() == 3


def test_a_torch_that_is_missing_is_missing_as_ever(threads: TorchThreads, tmp_path: Path) -> None:
    (tmp_path / "torch.py").unlink()
    sys.meta_path[:] = [import_hook.install(), BuiltinImporter]
    with pytest.raises(ModuleNotFoundError, match="No module named 'torch'"):
        importlib.import_module("torch")
    threads.set_count(1)
