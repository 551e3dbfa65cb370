"""What the configuration of a causal language model says: which model, where it runs, how it writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.compiled.shape_buckets import BucketError, parse_buckets

DTYPES = ("float32", "bfloat16", "float16")
MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """The parameters, with the values that hold where one is absent."""

    model: str
    """Folder or hub id."""
    revision: str | None
    device: str | None
    """None: the device that the server gave the worker, by its own choice or by the preference in the parameter."""
    dtype: str
    max_new_tokens: int
    max_input_tokens: int
    """Of a longer prompt the end counts."""
    num_beams: int
    do_sample: bool
    sampling: Mapping[str, float]
    """`temperature`, `top_k` and `top_p`, those that are given."""
    seed: int
    warm_up: str
    """The text that is continued before the model is ready."""
    uses_hpu_graphs: bool
    compiles: bool
    has_static_shapes: bool | None
    """None: on a real HPU."""
    buckets: tuple[int, ...]
    batch_buckets: tuple[int, ...]
    trust_remote_code: bool


def read_settings(config: Mapping[str, Any], model_dir: str) -> GenerationSettings:
    """The settings; raises ModelLoadError that names the parameter which is wrong."""
    parameters = Parameters(config)
    device = (parameters.text("device") or "auto").strip().lower()
    settings = GenerationSettings(
        model=_located(parameters.text("model", "huggingface_model"), str(config["name"]), model_dir),
        revision=parameters.text("revision") or None,
        device=None if device == "auto" or "," in device else device,
        dtype=_one_of(DTYPES, parameters.text("dtype", "torch_dtype") or DTYPES[0]),
        max_new_tokens=parameters.whole("max_new_tokens", "max_output_length", least=1) or 100,
        max_input_tokens=parameters.whole("max_input_tokens", least=1) or 1024,
        num_beams=parameters.whole("num_beams", least=1) or 1,
        do_sample=_flag(parameters, "do_sample", absent=True),
        sampling=_sampling(parameters),
        seed=_whole(parameters, "seed", absent=42),
        warm_up=parameters.text("warm_up") or "I am",
        uses_hpu_graphs=_flag(parameters, "use_hpu_graphs", absent=True),
        compiles=_flag(parameters, "torch_compile", absent=False),
        has_static_shapes=parameters.flag("static_shapes"),
        buckets=_buckets(parameters, "buckets"),
        batch_buckets=_buckets(parameters, "batch_buckets") or (1, 2, 4, 8),
        trust_remote_code=_flag(parameters, "trust_remote_code", absent=False),
    )
    parameters.warn_of_rest("python", {})
    return settings


def _located(model: str | None, name: str, model_dir: str) -> str:
    if not model:
        raise ModelLoadError(f"model '{name}' does not say what to serve; name a hub id or a folder in 'model'")
    path = os.path.expanduser(model.replace(MODEL_DIRECTORY, model_dir, 1))
    beside = os.path.join(model_dir, path)
    return beside if os.path.isdir(beside) else path


def _one_of(known: tuple[str, ...], value: str) -> str:
    if value not in known:
        raise ModelLoadError(f"parameter 'dtype' must be one of {', '.join(known)}, found '{value}'")
    return value


def _flag(parameters: Parameters, name: str, *, absent: bool) -> bool:
    value = parameters.flag(name)
    return absent if value is None else value


def _whole(parameters: Parameters, name: str, *, absent: int) -> int:
    value = parameters.whole(name)
    return absent if value is None else value


def _sampling(parameters: Parameters) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, kind in (("temperature", float), ("top_k", int), ("top_p", float)):
        text = parameters.text(name)
        if text is None:
            continue
        try:
            found[name] = kind(text)
        except ValueError:
            raise ModelLoadError(f"parameter '{name}' must be a number, found '{text}'") from None
    return found


def _buckets(parameters: Parameters, name: str) -> tuple[int, ...]:
    text = parameters.text(name)
    try:
        return parse_buckets(text) if text else ()
    except BucketError as error:
        raise ModelLoadError(f"parameter '{name}': {error}") from None
