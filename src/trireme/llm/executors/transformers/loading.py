"""Decides how a model of transformers is run, tries it, and says which way was taken and why."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from trireme.llm.executors.limits import check_bytes, limits_for, token_items
from trireme.llm.executors.port import Executor, ExecutorError
from trireme.llm.executors.torch.memory import cache_bytes, usable_bytes, what_is_usable
from trireme.llm.executors.transformers import probe
from trireme.llm.executors.transformers.model_code import ModelCode, load_model, spec_of
from trireme.llm.executors.transformers.paged_model import (
    NotPagedError,
    PagedCode,
    depends_on_length,
    failed,
    rope_kinds,
)
from trireme.llm.executors.transformers.sequence_executor import Feeding, SequenceExecutor
from trireme.llm.models.checkpoint import read_config
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.options import EngineOptions
from trireme.llm.step_plan import SchedulerLimits

log = logging.getLogger(__name__)


def load_general(folder: Path, options: EngineOptions, device: torch.device, dtype: str, why: str) -> Executor:
    """An executor for whatever causal model transformers knows; `why` says why the engine's own code does not run it.

    Raises ExecutorError where transformers cannot load the folder, or where the memory is too small.
    """
    kind = getattr(torch, dtype)
    _check_memory(folder, options, device, dtype, kind.itemsize)
    try:
        code = load_model(folder, device, kind)
    except ExecutorError as error:
        raise ExecutorError(f"{why}, and {error}") from error
    spec = spec_of(code, folder, options.max_length)
    log.info("%s runs on %s in %s through transformers' model code: %s", spec.architecture, device, dtype, why)
    try:
        executor = _paged(code, spec, options)
        log.info("%s keeps its keys and values in the engine's blocks", spec.architecture)
    except NotPagedError as reason:
        executor, feeding = _by_sequence(code, spec, options)
        log.info(
            "%s runs one sequence after another, %s; prompts are not shared: %s",
            spec.architecture,
            feeding.value,
            reason,
        )
    return executor


def _paged(code: ModelCode, spec: DecoderSpec, options: EngineOptions) -> Executor:
    paged = PagedCode(code)
    try:
        _try(paged, spec, options)
    except Exception as error:
        paged.restore()
        if isinstance(error, NotPagedError):
            raise
        raise failed(error) from error
    return paged.executor(spec, options)


def _try(paged: PagedCode, spec: DecoderSpec, options: EngineOptions) -> None:
    items = sum(layer.token_items for layer in paged.layers)
    trial = paged.executor(spec, probe.probe_options(items * paged.code.dtype.itemsize, options))
    probed = probe.run(trial, spec.max_positions)
    with paged.original():
        _compare(paged.code, probed)


def _compare(code: ModelCode, probed: list[probe.Probed]) -> None:
    with torch.inference_mode():
        for one in probed:
            if not probe.is_equal(one, code.plain_logits(one.tokens), code.dtype):
                raise NotPagedError("with its attention replaced it computes something else")


def _by_sequence(code: ModelCode, spec: DecoderSpec, options: EngineOptions) -> tuple[Executor, Feeding]:
    """The first way of feeding tokens that gives what the plain model gives."""
    limits = _sequence_limits(code, spec, options)
    trial = replace(
        limits, max_sequences=2, max_step_tokens=probe.OPTIONS.max_step_tokens, block_size=4, block_count=probe.BLOCKS
    )
    for feeding in _feedings(code):
        if feeding is Feeding.AGAIN or _is_right(code, SequenceExecutor(spec, trial, code, feeding), spec):
            break
    return SequenceExecutor(spec, limits, code, feeding), feeding


def _feedings(code: ModelCode) -> Iterator[Feeding]:
    if code.cache_name:
        if not depends_on_length(code.config):
            yield Feeding.PIECES
        yield Feeding.WHOLE
    yield Feeding.AGAIN


def _is_right(code: ModelCode, executor: Executor, spec: DecoderSpec) -> bool:
    try:
        probed = probe.run(executor, spec.max_positions)
        _compare(code, probed)
    except NotPagedError:
        return False
    except Exception as error:
        log.debug("a way to feed tokens is not the model's", exc_info=error)
        return False
    return True


def _sequence_limits(code: ModelCode, spec: DecoderSpec, options: EngineOptions) -> SchedulerLimits:
    """Blocks count what sequences may take together; what is in them is the model's own business."""
    items = token_items(spec) or 1
    own = replace(options, has_prefix_cache=False)
    limits = limits_for(spec, own, cache_bytes(code.device, options), code.dtype.itemsize, items)
    short = getattr(code.config, "original_max_position_embeddings", None) if _is_longrope(code) else None
    return replace(limits, short_positions=short or 0)


def _is_longrope(code: ModelCode) -> bool:
    return "longrope" in rope_kinds(code.config)


def _check_memory(folder: Path, options: EngineOptions, device: torch.device, dtype: str, item_bytes: int) -> None:
    files = [path for path in folder.iterdir() if path.suffix in (".safetensors", ".bin")]
    stored = str(read_config(folder).get("dtype") or read_config(folder).get("torch_dtype") or "float32")
    stored_bytes = getattr(getattr(torch, stored.removeprefix("torch."), None), "itemsize", 4)
    weights = sum(path.stat().st_size for path in files) * item_bytes // stored_bytes
    where = "the machine has {} of memory free" if device.type == "cpu" else what_is_usable(device, options)
    check_bytes(weights, options.cache_bytes or 0, dtype, usable_bytes(device, options), where)
