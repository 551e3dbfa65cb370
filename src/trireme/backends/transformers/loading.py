"""Loads a model, its tokenizer and its processor onto the worker's device."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError, require, thread_share
from trireme.backends.python.pb_utils.logger import Logger
from trireme.backends.transformers import source as sources
from trireme.backends.transformers.settings import Settings
from trireme.huggingface.tasks import TOKENIZER, TaskClasses
from trireme.machine.cpu_arithmetic import emulates

_PROGRESS_S = 10
_SHOWN_WEIGHTS = 4
_EMPTY_VOCABULARY = 2  # words that a tokenizer made of nothing may have beside its special tokens


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a task's runner is made of."""

    torch: Any
    transformers: Any
    settings: Settings
    source: str
    task: str
    """As the configuration names it, or as it follows from the architecture."""
    device: Any
    model: Any
    tokenizer: Any
    """None where the task has no texts; part of the processor where that has one."""
    processor: Any
    """Of images, sound, or several kinds of input; None for models of text."""

    def beside(self, name: str) -> Any:
        """What another class of transformers makes of the model's files; raises what the library raises."""
        return getattr(self.transformers, name).from_pretrained(self.source, **self.settings.pretrained_arguments)


def load(settings: Settings, source: str, task: str, classes: TaskClasses, device_name: str) -> Loaded:
    """Raises ModelLoadError with what to do about it."""
    # A cache of keys and values grows with every token; pieces of fixed size would have to be asked for each time.
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    transformers = require("transformers", "transformers")
    torch = require("torch", "transformers")
    transformers.utils.logging.disable_progress_bar()  # progress is told in lines of the log
    torch.set_num_threads(settings.thread_count or thread_share())
    device = _device(torch, settings, device_name)
    began = time.monotonic()
    Logger.log_info(f"loading '{source}' for {task} on {device}{_size_text(source)}")
    with _progress(source), _explained(settings, source, transformers):
        shared = settings.pretrained_arguments
        config = transformers.AutoConfig.from_pretrained(source, **shared)
        model = _load_model(torch, transformers, settings, source, classes, device, config, shared)
        tokenizer, processor = _load_processors(transformers, settings, source, classes, shared)
    count = sum(parameter.numel() for parameter in model.parameters())
    Logger.log_info(
        f"loaded '{source}' in {time.monotonic() - began:.1f} s: {type(model).__name__}, {count / 1e6:.1f} million "
        f"parameters, {str(model.dtype).removeprefix('torch.')}"
    )
    return Loaded(torch, transformers, settings, source, task, device, model, tokenizer, processor)


def _load_model(
    torch: Any,
    transformers: Any,
    settings: Settings,
    source: str,
    classes: TaskClasses,
    device: Any,
    config: Any,
    shared: dict[str, Any],
) -> Any:
    auto_class = _auto_class(transformers, classes, config)
    dtype = _dtype(torch, settings.dtype, device, config)
    model, info = auto_class.from_pretrained(
        source, config=config, output_loading_info=True, **{_dtype_name(transformers): dtype}, **shared
    )
    missing = sorted(info.get("missing_keys", ()))
    if missing:
        shown = ", ".join(missing[:_SHOWN_WEIGHTS]) + (", ..." if len(missing) > _SHOWN_WEIGHTS else "")
        Logger.log_warn(
            f"{len(missing)} weights of {type(model).__name__} are not in the files of '{source}' and are random "
            f"({shown}): was this model made for the task?"
        )
    return model.to(device).eval()


def _auto_class(transformers: Any, classes: TaskClasses, config: Any) -> Any:
    """The first class that knows the architecture; the last where the model brings its own code."""
    for name in classes.models:
        auto_class = getattr(transformers, name)
        if type(config) in auto_class._model_mapping:
            return auto_class
    return auto_class


def _load_processors(
    transformers: Any, settings: Settings, source: str, classes: TaskClasses, shared: dict[str, Any]
) -> tuple[Any, Any]:
    tokenizer = processor = None
    for name in classes.beside:
        if name == TOKENIZER:
            tokenizer = _load_tokenizer(transformers, settings, source, shared)
        else:
            processor = getattr(transformers, name).from_pretrained(source, **shared)
    return tokenizer or getattr(processor, "tokenizer", None), processor


def _load_tokenizer(transformers: Any, settings: Settings, source: str, shared: dict[str, Any]) -> Any:
    """Raises ModelLoadError where its files are not there, for which some releases make one that knows no words."""
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **shared)
    except (OSError, TypeError, ValueError):
        if os.path.isdir(source) and not any(map(_is_of_tokenizer, os.listdir(source))):
            raise _no_tokenizer(settings, source) from None
        raise
    words = set(tokenizer.get_vocab()).difference(tokenizer.all_special_tokens)
    if len(words) <= _EMPTY_VOCABULARY:
        raise _no_tokenizer(settings, source)
    return tokenizer


def _is_of_tokenizer(name: str) -> bool:
    return name.startswith(("tokenizer", "vocab")) or name.endswith((".model", ".spm", ".tiktoken"))


def _no_tokenizer(settings: Settings, source: str) -> ModelLoadError:
    return ModelLoadError(
        f"model '{settings.name}' ('{source}') has no tokenizer, or one without any words; put the tokenizer's files "
        "(tokenizer.json, tokenizer_config.json) beside its config.json, as the tokenizer's save_pretrained writes them"
    )


def _dtype_name(transformers: Any) -> str:
    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    return "dtype" if (major, minor) >= (4, 56) else "torch_dtype"


def _dtype(torch: Any, name: str, device: Any, config: Any) -> Any:
    """As the files have it for "auto", except where a CPU would emulate the arithmetic, several times slower."""
    if name != "auto":
        return getattr(torch, name)
    saved = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
    is_slow = device.type == "cpu" and emulates(str(saved).removeprefix("torch."))
    return torch.float32 if is_slow else "auto"


def _device(torch: Any, settings: Settings, name: str) -> Any:
    kind = name.partition(":")[0]
    if kind == "neuron":
        raise ModelLoadError(
            f"model '{settings.name}' was placed on '{name}', which runs compiled models only; compile it for the "
            "backend \"neuron\", or set the parameter 'device' to cpu"
        )
    if kind == "hpu":
        _import_gaudi(settings, name)
    if kind == "cuda" and not torch.cuda.is_available():
        raise ModelLoadError(
            f"model '{settings.name}' was placed on '{name}', and this PyTorch ({torch.__version__}) finds no GPU; "
            "install a build with CUDA, or set the parameter 'device' to cpu"
        )
    return torch.device(name)


def _import_gaudi(settings: Settings, name: str) -> None:
    """Makes the device known to PyTorch."""
    try:
        importlib.import_module("habana_frameworks.torch.core")
    except ImportError as error:
        raise ModelLoadError(
            f"model '{settings.name}' was placed on '{name}', and Gaudi's software for PyTorch cannot be imported "
            f"({error}); install it, or set the parameter 'device' to cpu"
        ) from error


def _size_text(source: str) -> str:
    if not os.path.isdir(source):
        return ""
    sizes = [entry.stat().st_size for entry in os.scandir(source) if entry.name.endswith((".safetensors", ".bin"))]
    return f": {sum(sizes) / 1e9:.2f} GB in {len(sizes)} files" if sizes else ""


@contextlib.contextmanager
def _progress(source: str) -> Iterator[None]:
    """A line of the log now and then, for models that take long."""
    done = threading.Event()
    began = time.monotonic()

    def tell() -> None:
        while not done.wait(_PROGRESS_S):
            seconds = time.monotonic() - began
            Logger.log_info(f"still loading '{source}': {seconds:.0f} s, {_resident_gb():.1f} GB of memory in use")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _resident_gb() -> float:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e9
    except (OSError, ValueError):
        return 0.0


@contextlib.contextmanager
def _explained(settings: Settings, source: str, transformers: Any) -> Iterator[None]:
    """The library's errors in the words of whoever wrote the configuration."""
    try:
        yield
    except ModelLoadError:
        raise
    except Exception as error:
        text = str(error).strip() or type(error).__name__
        about = f"model '{settings.name}' ('{source}')"
        if "trust_remote_code" in text:
            raise ModelLoadError(
                f"{about} brings code of its own, which runs only where the parameter 'trust_remote_code' is true in "
                "its configuration; read the code before you allow it"
            ) from error
        if isinstance(error, OSError) and not os.path.isdir(source):
            raise sources.not_found(settings, source, error) from error
        if isinstance(error, ImportError):
            raise ModelLoadError(f"{about} needs a package that is not installed: {text}") from error
        if text.startswith("Unrecognized configuration class"):
            raise ModelLoadError(
                f"{about} is not made for its task: transformers {transformers.__version__} has no class of this "
                f"architecture for it ({text.rpartition('AutoModel: ')[2].splitlines()[0].rstrip('.')}); name another "
                "in the parameter 'task', or leave it out"
            ) from error
        reason = text.splitlines()[0]  # more of it is often a list of all architectures
        raise ModelLoadError(
            f"{about} could not be loaded by transformers {transformers.__version__}: {reason}"
        ) from error
