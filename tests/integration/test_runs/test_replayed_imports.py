"""An import that is replayed leaves what the import itself would leave."""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

import pytest
import replayed_imports
from preloaded_frameworks import PutAside
from replayed_imports import CONSTANTS, OF_COMMANDS, ROOTS, Replay

OTHERS = {
    "HF_ENDPOINT": "http://localhost:1",
    "HF_HOME": "/another/home",
    "HF_HUB_CACHE": "/another/cache",
    "HF_HUB_ETAG_TIMEOUT": "1",
    "HF_HUB_OFFLINE": "1",
}
STEPS = (
    "import huggingface_hub",
    "import transformers",
    "from huggingface_hub import snapshot_download",
    "from transformers.models.gpt2 import modeling_gpt2",
    "import transformers; transformers.OPTForCausalLM; transformers.pipelines.text_generation",
    "from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, pipeline",
)


@pytest.fixture(scope="module")
def replay() -> Iterator[Replay]:
    """The finder that processes forked from here have, in front of all others; none of the packages is imported."""
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    finders, known = list(sys.meta_path), dict(sys.modules)
    for name in [name for name in sys.modules if name.partition(".")[0] in ROOTS]:
        del sys.modules[name]
    sys.meta_path.insert(0, aside := PutAside({}))  # type: ignore[arg-type]
    replay = replayed_imports.preload(aside)
    assert replay is not None
    assert not ROOTS & sys.modules.keys()
    yield replay
    sys.meta_path[:] = finders
    sys.modules |= {**aside.modules, **known}


def in_a_fork(act: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns in a process of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = {"result": act(*arguments)}
        except BaseException:
            answer = {"failure": traceback.format_exc()}
        with open(writing, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        answer = json.load(pipe)
    os.waitpid(pid, 0)
    assert "failure" not in answer, answer["failure"]
    return answer["result"]


def steps(replay: Replay, *, is_replayed: bool) -> tuple[list[list[str]], dict[str, str]]:
    """The modules that are there behind each step, and in the end what they contain."""
    if not is_replayed:
        sys.meta_path.remove(replay)  # type: ignore[arg-type]
    os.environ |= OTHERS
    found = []
    for step in STEPS:
        exec(step, {})
        theirs = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in ROOTS}
        found.append(sorted(theirs))
    assert replay.is_begun is is_replayed
    return found, values_of(theirs)


def values_of(modules: Mapping[str, Any]) -> dict[str, str]:
    """Every text and number in the modules, and what their functions have in place of arguments that are not given;
    but for what a package has looked up in its modules, and what is of commands."""
    found: dict[str, str] = {}
    for place, module in modules.items():
        for name, value in vars(module).items():
            is_of_commands = f"{getattr(value, '__module__', '')}.".startswith(OF_COMMANDS)
            if "_class_to_module" in vars(module) or name == "SESSION_ID" or name.startswith("__") or is_of_commands:
                continue
            for number, part in enumerate([value, *((isinstance(value, FunctionType) and value.__defaults__) or ())]):
                if isinstance(part, str | int | float | None | frozenset) and not place.startswith(OF_COMMANDS):
                    found[f"{place}.{name} {number}"] = str(sorted(part) if isinstance(part, frozenset) else part)
    return found


def test_it_leaves_the_same_modules_with_the_places_of_the_process_that_imports(replay: Replay) -> None:
    modules, values = in_a_fork(lambda: steps(replay, is_replayed=True))
    real_modules, real_values = in_a_fork(lambda: steps(replay, is_replayed=False))
    assert modules == real_modules
    assert values == real_values
    assert values[f"{CONSTANTS}.HF_HUB_CACHE 0"] == "/another/cache"
    assert values["transformers.dynamic_module_utils.HF_MODULES_CACHE 0"] == "/another/home/modules"


def conversions(replay: Replay, *, is_replayed: bool) -> dict[str, list[list[list[str]]]]:
    """What a process that loads a model knows of the names that tensors had in former releases."""
    if not is_replayed:
        sys.meta_path.remove(replay)  # type: ignore[arg-type]
    module = importlib.import_module("transformers.conversion_mapping")
    assert (module._build_checkpoint_conversion_mapping.__module__ == replayed_imports.__name__) is is_replayed
    module.get_checkpoint_conversion_mapping("")
    return {
        model: [[one.source_patterns, one.target_patterns] for one in given]
        for model, given in module._checkpoint_conversion_mapping_cache.items()
    }


def test_the_former_names_of_tensors_are_given_with_the_modules(replay: Replay) -> None:
    assert in_a_fork(lambda: conversions(replay, is_replayed=True)) == in_a_fork(
        lambda: conversions(replay, is_replayed=False)
    )


@pytest.mark.parametrize(("variable", "is_replayed"), [("TRANSFORMERS_VERBOSITY", False), ("HF_HUB_OFFLINE", True)])
def test_who_has_variables_that_others_read_imports_anew(replay: Replay, variable: str, is_replayed: bool) -> None:
    def act() -> bool:
        os.environ[variable] = "1" if is_replayed else "error"
        importlib.import_module("huggingface_hub")
        return replay.is_begun

    assert in_a_fork(act) is is_replayed


@pytest.mark.usefixtures("replay")
def test_a_change_behind_the_import_of_a_module_reaches_those_that_import_it_later() -> None:
    def act() -> bool:
        sys.meta_path.insert(0, Changing("huggingface_hub.file_download", "hf_hub_download"))  # type: ignore[arg-type]
        return bool(importlib.import_module("transformers.utils.hub").hf_hub_download == "changed")

    assert in_a_fork(act)


class Changing:
    """A finder as a worker has it: acts on a module right behind its import."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def find_spec(self, name: str, *more: Any) -> Any:
        if name != self._module:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (finder.find_spec(name, *more) for finder in others)))
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            setattr(module, self._name, "changed")

        loader.exec_module = exec_module
        return spec
