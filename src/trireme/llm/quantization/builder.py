"""Builds an engine folder from a model's folder."""

from __future__ import annotations

import importlib.util
import json
import logging
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trireme import __version__
from trireme.core.wording.extras import install_line
from trireme.llm.models.catalog import config_of, load_weights, quantization_of, read_spec
from trireme.llm.models.checkpoint import StoredWeight, Weight, to_float32
from trireme.llm.models.engine_folder.description import (
    DESCRIPTION_FILE,
    WEIGHTS_FILE,
    EngineDescription,
    write_description,
)
from trireme.llm.models.engine_folder.writer import TensorWriter
from trireme.llm.models.quantized import QuantizedWeight
from trireme.llm.models.spec import DecoderSpec
from trireme.llm.quantization.perplexity import perplexity
from trireme.llm.quantization.plain import QuantizationError, quantize_layer, to_stored
from trireme.llm.quantization.plan import CALIBRATED, Method, Tensors, by_layer
from trireme.llm.quantization.texts import TokenText, read_text
from trireme.llm.tokenizer.loading import load_tokenizer
from trireme.llm.tokenizer.port import Tokenizer, TokenizerError

log = logging.getLogger(__name__)

_COPIED = {".json", ".txt", ".model", ".jinja", ".md", ".tiktoken", ""}
"""By the end of their names: files that belong to a model beside its weights."""
_LEFT_OUT = {"config.json", DESCRIPTION_FILE, "quantize_config.json", "quant_config.json"}
_STORED = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_LONGEST_PIECE = 512
_TENSORS_OF_A_LAYER = 48


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What is to be built, and from what."""

    model: Path
    output: Path
    method: Method = "none"
    dtype: str | None = None
    """What stays in floats is written so; None: as the checkpoint has it."""
    calibration: Path | None = None
    calibration_size: int = 128
    """How many pieces of the text a method with calibration sees at most."""
    measures_perplexity: bool = True
    perplexity_text: Path | None = None
    """None: the calibration's text, or the built-in one."""
    device: str = "auto"
    kv_cache: str = "auto"
    """How the folder's keys and values are kept where it is served."""
    tensor_parallel: int = 1
    """Among how many processes the folder is divided where it is served."""


Tell = Callable[[str, int, int], None]
"""What is being done, how many bytes of it, of how many."""


def build(options: BuildOptions, tell: Tell) -> EngineDescription:
    """Writes the folder; raises QuantizationError, CheckpointError, UnsupportedModelError, ExecutorError or OSError.

    The folder appears when it is whole: until then its files are in another one beside it.
    """
    if options.method in CALIBRATED and importlib.util.find_spec("torch") is None:
        raise QuantizationError(
            f"{options.method} needs PyTorch, which is not installed: pip install torch, or "
            f"{install_line('transformers')}, which brings it; int4 is computed without"
        )
    spec, source_quantization = read_spec(options.model), quantization_of(options.model)
    if source_quantization and options.method != "none":
        raise QuantizationError(
            f"{options.model} is quantized already ({source_quantization}); leave --quantize out, or build from the "
            "model that it was made from"
        )
    if options.tensor_parallel > 1:
        _check_divisible(spec, options.tensor_parallel)
    if options.output.exists() and (not options.output.is_dir() or any(options.output.iterdir())):
        raise QuantizationError(f"{options.output} exists and is not empty; name another folder, or delete it")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    partial = options.output.with_name(f".{options.output.name}-{secrets.token_hex(8)}")
    try:  # whoever ends this from the moment on that the folder is there has it removed
        partial.mkdir(mode=0o700)
        description = _write_all(options, spec, source_quantization, partial, tell)
        partial.chmod(0o755)
        if options.output.exists():
            options.output.rmdir()
        partial.rename(options.output)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return description


def _check_divisible(spec: DecoderSpec, count: int) -> None:
    try:
        from trireme.llm.executors.ranks.division import check_divisible
    except ImportError as error:
        raise QuantizationError(f"a model that is divided needs PyTorch ({error}); install torch") from None
    check_divisible(spec, count)


def _write_all(
    options: BuildOptions, spec: DecoderSpec, source_quantization: str, partial: Path, tell: Tell
) -> EngineDescription:
    tokenizer = _tokenizer(options)
    calibration = measured = None
    if options.method in CALIBRATED:
        assert tokenizer is not None
        longest = min(_LONGEST_PIECE, spec.max_positions)
        calibration = read_text(options.calibration, tokenizer, longest, options.calibration_size)
        log.info("calibration with %d tokens of %s", calibration.tokens, calibration.name)
    if tokenizer is not None and options.measures_perplexity:  # a text that cannot be used is told before the work
        file, longest = options.perplexity_text or options.calibration, min(_LONGEST_PIECE, spec.max_positions - 1)
        measured = read_text(file, tokenizer, longest, options.calibration_size)
    _copy_files(options.model, partial)
    description = _write_weights(options, spec, partial, calibration, tell)
    if source_quantization:
        description = replace(description, quantization=source_quantization)
    write_description(partial, description)
    if measured is not None:
        description = replace(description, perplexity=_measure(options, measured, partial, tell))
        write_description(partial, description)
    return description


def _tokenizer(options: BuildOptions) -> Tokenizer | None:
    try:
        return load_tokenizer(options.model)
    except TokenizerError as error:
        if options.method in CALIBRATED:
            raise QuantizationError(f"{options.method} needs the model's tokenizer for calibration: {error}") from None
        if options.measures_perplexity:
            log.info("the perplexity is not measured: %s", error)
        return None


def _copy_files(source: Path, target: Path) -> None:
    config = {name: value for name, value in config_of(source).items() if name != "quantization_config"}
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for path in sorted(source.iterdir()):
        is_index = path.name.endswith(".index.json")
        if path.is_file() and path.suffix in _COPIED and path.name not in _LEFT_OUT and not is_index:
            shutil.copyfile(path, target / path.name)


def _write_weights(
    options: BuildOptions, spec: DecoderSpec, target: Path, calibration: TokenText | None, tell: Tell
) -> EngineDescription:
    total = _weight_file_bytes(options.model)
    done, bits = 0, Counter[str]()
    what = "writing weights" if options.method == "none" else f"quantizing to {options.method}"
    tell(what, 0, total)
    with TensorWriter(target / WEIGHTS_FILE, (spec.layer_count + 1) * _TENSORS_OF_A_LAYER) as writer:
        for size, prefix, tensors in _quantized(options, spec, calibration):
            for name, weight in tensors.items():
                writer.add(prefix + name, _in_type(weight, options.dtype))
                if isinstance(weight, QuantizedWeight):
                    bits[weight.bits] += 1
            done += size
            tell(what, done, total)
    return EngineDescription(
        quantization=options.method,
        tensors=writer.tensors,
        weight_bytes=writer.weight_bytes,
        source="/".join(options.model.resolve().parts[-2:]),
        source_bytes=done,
        bits=dict(bits),
        calibration=calibration.name if calibration is not None else "",
        built_by=f"trireme {__version__}",
        kv_cache=options.kv_cache,
        tensor_parallel=options.tensor_parallel,
    )


def _quantized(
    options: BuildOptions, spec: DecoderSpec, calibration: TokenText | None
) -> Iterator[tuple[int, str, Tensors]]:
    """Layer by layer: how large it was, its prefix, and what it has become."""
    weights = load_weights(options.model, spec)
    if calibration is None:
        for prefix, tensors in by_layer(weights):
            size = sum(_size(weight) for weight in tensors.values())
            yield size, prefix, quantize_layer(spec, prefix, tensors, options.method)
        return
    from trireme.llm.quantization.calibrated import quantize_calibrated  # late: the other methods need no PyTorch

    for prefix, before, tensors in quantize_calibrated(
        spec, weights, options.method, calibration.sequences, options.device
    ):
        yield sum(_size(weight) for weight in before.values()), prefix, tensors


def _weight_file_bytes(folder: Path) -> int:
    """About how much is to be read."""
    return sum(path.stat().st_size for end in ("safetensors", "bin") for path in folder.rglob(f"*.{end}"))


def _size(weight: StoredWeight) -> int:
    return weight.array.nbytes if isinstance(weight, Weight) else weight.nbytes


def _in_type(weight: StoredWeight, dtype: str | None) -> StoredWeight:
    wanted = _STORED[dtype] if dtype is not None else None
    if wanted is None or isinstance(weight, QuantizedWeight) or weight.dtype == wanted:
        return weight
    return to_stored(to_float32(weight), wanted)


def _measure(options: BuildOptions, text: TokenText, built: Path, tell: Tell) -> dict[str, Any]:
    """What the folder's description says about the change."""
    tell("measuring perplexity before", 0, 0)
    before = perplexity(options.model, text, options.device)
    tell("measuring perplexity after", 0, 0)
    after = perplexity(built, text, options.device)
    return {"text": text.name, "tokens": text.tokens, "before": round(before, 4), "after": round(after, 4)}
