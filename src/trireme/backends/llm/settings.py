"""What the parameters of a model's configuration decide: the folder, the device, the limits of its engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.llm.hub_folder import hub_folder, is_hub_id
from trireme.backends.python.worker_device import CPU, DEVICE_VARIABLE, device_of_worker
from trireme.config.nearest import meant
from trireme.huggingface.adapters import PARAMETER as ADAPTERS
from trireme.huggingface.adapters import find_adapters_folder
from trireme.llm.chat.formats import AUTO, NONE, REASONING_TAGS, TOOL_FORMATS
from trireme.llm.executors.limits import refuse_beside_numpy
from trireme.llm.executors.port import ExecutorError
from trireme.llm.executors.ranks.mpi import mpi_process_count
from trireme.llm.options import CacheType, EngineOptions, SpeculationMode, WarmUpMode

T = TypeVar("T")

SELF_PLACED = ("CPU", "MODEL")
"""Kinds of instances in the files of engines that look for GPUs by themselves, whatever the kind says."""
_EXECUTORS = ("auto", "numpy")


@dataclass(frozen=True, slots=True)
class Settings:
    """One model's."""

    folder: Path
    device: str
    dtype: str
    options: EngineOptions
    tool_parser: str
    reasoning_parser: str
    max_new_tokens: int | None
    """How many tokens an answer has whose request does not say; None: what fits."""


def read_settings(
    config: Mapping[str, Any],
    args: Mapping[str, str],
    around_texts: Callable[[], AbstractContextManager[None]],
    *,
    self_placed_kinds: Collection[str] = ("MODEL",),
    called: Mapping[str, str] = MappingProxyType({}),
    adapters: Mapping[str, Path] | None = None,
) -> Settings:
    """Reads `parameters`; raises ModelLoadError with the parameter's name where one cannot be followed, or with what
    it is `called` where its user has written something else.

    An engine whose instance is of one of the `self_placed_kinds` chooses its device itself, unless the parameter
    `device` names one. `adapters` by name are those that another file than the configuration has told of.
    """
    given = {key: entry.get("string_value", "") for key, entry in config.get("parameters", {}).items()}
    reader = _Reader(config["name"], given, called=called)
    model_dir, version = Path(args["model_repository"]), args["model_version"]
    options = replace(
        _engine_options(reader),
        draft_model=_draft_folder(reader, model_dir, version),
        adapters=_adapters_folder(reader, model_dir, version) if adapters is None else adapters,
        around_texts=around_texts,
    )
    _check_ranks_of_adapters(reader, options)
    executor, dtype = _computing(reader, options)
    named, revision = reader.text("model", ""), reader.text("revision", "") or None
    folder = _folder(named, revision, model_dir, version, reader.called("model"))
    tool_parser, reasoning_parser, max_new_tokens = _answer_parameters(reader)
    reader.refuse_rest()
    is_self_placed = args["model_instance_kind"] in self_placed_kinds and given.get("device", "") in ("", "auto")
    device = "numpy" if executor == "numpy" else _placed(args, is_self_placed)
    return Settings(folder, device, dtype, options, tool_parser, reasoning_parser, max_new_tokens)


def parameter_problems(name: str, given: Mapping[str, str], model_dir: Path, version: str) -> list[str]:
    """What `read_settings` would refuse, all of it; no model is looked for, and nothing is fetched."""
    problems: list[str] = []
    reader = _Reader(name, given, problems.append)
    _computing(reader, _engine_options(reader))
    for key in ("draft_model", "model", "revision"):
        reader.text(key, "")
    try:
        _adapters_folder(reader, model_dir, version)
    except ModelLoadError as error:
        problems.append(str(error))
    _answer_parameters(reader)
    reader.refuse_rest()
    return problems


def _engine_options(reader: _Reader) -> EngineOptions:
    """Without the folders of other models."""
    defaults = EngineOptions()
    reader.text("device", "")  # which the server has followed when it placed the worker
    return EngineOptions(
        max_sequences=reader.number("max_sequences", defaults.max_sequences, 1),
        max_waiting=reader.number("max_waiting", defaults.max_waiting, 0),
        max_step_tokens=reader.number("max_step_tokens", defaults.max_step_tokens, 16),
        max_length=reader.number("max_length", 0, 0) or None,
        block_size=reader.number("block_size", defaults.block_size, 1),
        cache_bytes=reader.number("cache_bytes", 0, 1) or None,
        cache_tokens=reader.number("cache_tokens", 0, 1) or None,
        memory_share=reader.share("memory_share", defaults.memory_share),
        cache_share=reader.share("cache_share", 0) or None,
        has_prefix_cache=reader.flag("prefix_cache", True),
        step_timeout_s=reader.number("step_timeout_s", int(defaults.step_timeout_s), 1),
        has_graphs=reader.flag("graphs", True),
        is_batch_invariant=reader.flag("batch_invariant", False),
        cache_type=CacheType(reader.choice("kv_cache_dtype", tuple(kind.value for kind in CacheType))),
        ranks=reader.number("tensor_parallel", _mpi_ranks(), 1) or None,
        warm_up=WarmUpMode(reader.choice("warm_up", tuple(mode.value for mode in WarmUpMode))),
        speculation=_speculation(reader),
        speculation_tokens=reader.number("speculation_tokens", defaults.speculation_tokens, 1),
        draft_cache_bytes=reader.number("draft_cache_bytes", 0, 1) or None,
        max_adapters=reader.number("max_adapters", defaults.max_adapters, 1),
    )


def _computing(reader: _Reader, options: EngineOptions) -> tuple[str, str]:
    """The executor and its type of numbers, which go with the other options."""
    executor, dtype = reader.choice("executor", _EXECUTORS), reader.text("dtype", "auto")
    if executor == "numpy":
        try:
            refuse_beside_numpy(options, dtype)
        except ExecutorError as error:
            reader.refuse(f"{reader.called('executor')} is 'numpy': {error}")
    return executor, dtype


def _answer_parameters(reader: _Reader) -> tuple[str, str, int | None]:
    """The parsers of tool calls and of reasoning, and how many tokens an answer has at most."""
    tool_parser = reader.choice("tool_parser", (AUTO, NONE, *TOOL_FORMATS))
    reasoning_parser = reader.choice("reasoning_parser", (AUTO, NONE, *REASONING_TAGS))
    return tool_parser, reasoning_parser, reader.number("max_new_tokens", 0, 1) or None


def _mpi_ranks() -> int:
    """What mpirun says; 0 without it."""
    count = mpi_process_count(os.environ)
    return count if count > 1 else 0


def _speculation(reader: _Reader) -> SpeculationMode:
    """Who names a draft model wants it used."""
    has_draft = bool(reader.given("draft_model"))
    words = tuple(mode.value for mode in SpeculationMode)
    mode = SpeculationMode(reader.choice("speculation", ("draft", "off") if has_draft else words))
    if mode is SpeculationMode.DRAFT and not has_draft:
        told = f"{reader.called('speculation')} is 'draft'"
        reader.refuse(f"{told}: name the smaller model's folder with {reader.called('draft_model')}")
    return mode


def _draft_folder(reader: _Reader, model_dir: Path, version: str) -> Path | None:
    named = reader.text("draft_model", "")
    return _folder(named, None, model_dir, version, reader.called("draft_model")) if named else None


def _adapters_folder(reader: _Reader, model_dir: Path, version: str) -> Path | None:
    named = reader.text(ADAPTERS, "")
    if not named:
        return None
    folder = find_adapters_folder(named, model_dir, version)
    if folder is None:
        raise ModelLoadError(
            f"{reader.called(ADAPTERS)} names the folder '{named}', which is neither in '{model_dir / version}' nor in "
            f"'{model_dir}'; it has a sub-folder with an adapter_config.json for each adapter"
        )
    return folder


def _check_ranks_of_adapters(reader: _Reader, options: EngineOptions) -> None:
    """Before a model is loaded that cannot have them."""
    if options.adapters is not None and (options.ranks or 1) > 1:
        raise ModelLoadError(
            f"{reader.called(ADAPTERS)} cannot be followed on {options.ranks} ranks: adapters are computed on one; set "
            f"{reader.called('tensor_parallel')} to 1, or merge the adapters into the model"
        )


def _placed(args: Mapping[str, str], is_self_placed: bool) -> str:
    """Where the server has put the worker; "auto" where it did not say, or left it to the model."""
    if os.environ.get(DEVICE_VARIABLE):
        device = device_of_worker()
        return "auto" if is_self_placed and device == CPU else device
    return f"cuda:{args['model_instance_device_id']}" if args["model_instance_kind"] == "GPU" else "auto"


def _folder(named: str, revision: str | None, model_dir: Path, version: str, called: str) -> Path:
    """What that parameter names: a folder beside the model's files or an id of the hub; else the version's."""
    version_dir = model_dir / version
    tried = [version_dir / named, model_dir / named, Path(named)] if named else [version_dir, model_dir]
    for folder in tried:
        if any((folder / name).is_file() for name in ("config.json", "config.ini")):
            return folder
    if named and is_hub_id(named):
        return hub_folder(named, revision, called)
    places = " nor ".join(f"'{folder}'" for folder in dict.fromkeys(tried))  # an absolute one is three times the same
    raise ModelLoadError(
        f"there is no language model: {places} has no config.json; put the files of a Hugging Face model there, "
        f"or name their folder with {called}"
    )


def _raise(text: str) -> None:
    raise ModelLoadError(text)


class _Reader:
    """Takes parameters one by one, and knows which were not taken."""

    def __init__(
        self,
        name: str,
        given: Mapping[str, str],
        refuse: Callable[[str], None] = _raise,
        called: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.refuse = refuse
        self._name = name
        self._given = dict(given)
        self._known: list[str] = []
        self._called = called

    def called(self, key: str) -> str:
        """The parameter by the name that its user has written."""
        return self._called.get(key, f"parameter '{key}'")

    def given(self, key: str) -> str:
        """What is given, without taking it."""
        return self._given.get(key, "")

    def text(self, key: str, default: str) -> str:
        self._known.append(key)
        return self._given.pop(key, default)

    def number(self, key: str, default: int, least: int) -> int:
        return self._parsed(key, default, int, lambda value: value >= least, f"a whole number of at least {least}")

    def share(self, key: str, default: float) -> float:
        return self._parsed(key, default, float, lambda value: 0 < value <= 1, "a number above 0 and at most 1")

    def choice(self, key: str, words: tuple[str, ...]) -> str:
        return self._parsed(key, words[0], str, lambda value: value in words, " or ".join(words))

    def flag(self, key: str, default: bool) -> bool:
        words = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}
        return self._parsed(key, default, lambda text: words[text.lower()], lambda _: True, "true or false")

    def refuse_rest(self) -> None:
        for key in self._given:
            told = meant(key, self._known) or f"; it knows: {', '.join(sorted(self._known))}"
            self.refuse(f"model '{self._name}' has a parameter '{key}' that the llm backend does not know{told}")

    def _parsed(self, key: str, default: T, parse: Callable[[str], T], fits: Callable[[T], bool], wanted: str) -> T:
        text = self.text(key, "")
        if not text:
            return default
        try:
            value = parse(text)
            if fits(value):
                return value
        except (ValueError, KeyError):
            pass
        self.refuse(f"{self.called(key)} of model '{self._name}' must be {wanted}, found '{text}'")
        return default
