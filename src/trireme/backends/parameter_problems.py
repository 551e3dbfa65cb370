"""Parameters of a configuration that a worker would refuse when it loads the model, found without starting one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.fil.forest_file import FILE_NAMES as FOREST_NAMES
from trireme.backends.llm import settings as llm
from trireme.backends.services import ModelSource
from trireme.backends.token_model.parameters import read_token_settings
from trireme.backends.vllm.engine_file import read_engine_file
from trireme.llm.models.checkpoint import CheckpointError

_TOKEN_MODELS = ("tensorrtllm", "tensorrt_llm", "fastertransformer")


class _Whole(NamedTuple):
    """A whole number; the first of the names that is given counts."""

    names: tuple[str, ...]
    least: int = 0


class _Flag(NamedTuple):
    """True or false."""

    names: tuple[str, ...]


class _OneOf(NamedTuple):
    """One of these words."""

    names: tuple[str, ...]
    words: tuple[str, ...]


class _Number(NamedTuple):
    """Any number."""

    names: tuple[str, ...]


Rule = _Whole | _Flag | _OneOf | _Number

RULES: Mapping[str, tuple[Rule, ...]] = {
    "catboost": (_Whole(("thread_count",), 1),),
    "fil": (
        _Whole(("cpu_nthread",), 1),
        _Flag(("output_class", "is_classifier")),
        _Flag(("predict_proba",)),
        _Flag(("xgboost_allow_unknown_field",)),
        _OneOf(("model_type",), tuple(FOREST_NAMES)),
        _Number(("threshold",)),
    ),
    "lightgbm": (_Whole(("num_threads",), 1),),
    "neuron": (
        _Whole(("COMPILED_BATCH_SIZE",), 1),
        _Whole(("NUM_THREADS_PER_CORE",), 1),
        _Whole(("NEURON_CORE_START_INDEX",)),
        _Whole(("NEURON_CORE_END_INDEX",)),
        _Flag(("DISABLE_BATCH_REQUESTS_TO_NEURON",)),
        _Flag(("INF2",)),
    ),
    "onnxruntime": (
        _Whole(("intra_op_thread_count",)),
        _Whole(("inter_op_thread_count",)),
        _Whole(("execution_mode",)),
        _Flag(("enable_mem_arena",)),
        _Flag(("enable_mem_pattern",)),
    ),
    "openvino": (_Whole(("INFERENCE_NUM_THREADS", "CPU_THREADS_NUM"), 1),),
    "pytorch": (
        _Whole(("INTRA_OP_THREAD_COUNT", "NUM_THREADS")),
        _Whole(("INTER_OP_THREAD_COUNT", "NUM_INTEROP_THREADS")),
        _Flag(("INFERENCE_MODE",)),
        _Flag(("ENABLE_CACHE_CLEANING",)),
        _Flag(("DISABLE_CUDNN",)),
        _Flag(("DISABLE_OPTIMIZED_EXECUTION",)),
        _Flag(("ENABLE_TENSOR_FUSER",)),
    ),
    "tensorflow": (_Whole(("TF_NUM_INTRA_THREADS",)), _Whole(("TF_NUM_INTER_THREADS",))),
    "transformers": (
        _Flag(("trust_remote_code",)),
        _Flag(("chat",)),
        _Flag(("stream",)),
        _Whole(("INTRA_OP_THREAD_COUNT", "thread_count"), 1),
    ),
    "xgboost": (_Whole(("nthread",), 1), _Flag(("best_iteration",))),
}
"""By backend: what its `model.py` asks of its parameters. A test holds these lists against those files."""


def parameter_problems(source: ModelSource) -> Iterator[tuple[str, str]]:
    """The parameter, or "", and the sentence that the load would fail with."""
    given = {key: value.string_value for key, value in source.config.parameters.items()}
    backend, name = source.config.backend, source.name
    if backend == "llm":
        for text in llm.parameter_problems(name, given, source.model_dir, str(source.version)):
            yield next((key for key in given if f"'{key}'" in text.removeprefix(f"model '{name}'")), ""), text
        return
    config = {"name": name, "parameters": {key: {"string_value": text} for key, text in given.items()}}
    if (problem := _file_problem(source, config)) is not None:
        yield next((key for key in given if f"'{key}'" in problem), ""), problem
    for rule in RULES.get(backend, ()):
        try:
            _asked(Parameters(config), rule)
        except ModelLoadError as error:
            yield next((key for key in rule.names if key in given), ""), str(error)


def _asked(parameters: Parameters, rule: Rule) -> None:
    if isinstance(rule, _Whole):
        parameters.whole(*rule.names, least=rule.least)
    elif isinstance(rule, _Flag):
        parameters.flag(*rule.names)
    elif isinstance(rule, _OneOf):
        text = parameters.text(*rule.names)
        if text is not None and text not in rule.words:
            raise ModelLoadError(f"parameter '{rule.names[0]}' must be one of {', '.join(rule.words)}, found '{text}'")
    else:
        _check_number(rule.names[0], parameters.text(*rule.names))


def _check_number(name: str, text: str | None) -> None:
    try:
        float(text or "0")
    except ValueError:
        raise ModelLoadError(f"parameter '{name}' must be a number, found '{text}'") from None


def _file_problem(source: ModelSource, config: Mapping[str, Any]) -> str | None:
    """Of backends that find their checkpoint by what a parameter or a file of theirs says."""
    args = {"model_repository": str(source.model_dir), "model_version": str(source.version)}
    try:
        if source.config.backend == "vllm":
            read_engine_file(source.model_dir, str(source.version))
        elif source.config.backend in _TOKEN_MODELS:
            args |= {"model_instance_kind": "CPU", "model_instance_device_id": "0"}
            read_token_settings(config, args, nullcontext)
    except (ModelLoadError, CheckpointError) as error:
        return str(error)
    return None
