"""What the configuration says of a Hugging Face model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trireme.backends.compiled.batching import RequestError
from trireme.backends.compiled.model_load import ModelLoadError
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.compiled.shape_buckets import BucketError, parse_buckets
from trireme.backends.transformers.forms import Option, TaskForm

_DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Settings:
    """The parameters of a configuration that are not options of a task."""

    name: str
    model: str | None
    """Hub id or folder; None: what is in the version folder."""
    task: str | None
    device: str | None
    dtype: str
    revision: str | None
    trust_remote_code: bool
    is_chat: bool
    is_streaming: bool | None
    """Whether the model is to be decoupled; None: as its transaction policy says."""
    buckets: tuple[int, ...]
    """Lengths that inputs are padded to, for devices that compile a graph for each shape; empty: none."""
    thread_count: int | None

    @property
    def pretrained_arguments(self) -> dict[str, Any]:
        """What every `from_pretrained` is called with for this model's files."""
        chosen = {} if self.revision is None else {"revision": self.revision}
        return {"trust_remote_code": self.trust_remote_code, **chosen}


def read_settings(config: Mapping[str, Any]) -> tuple[Settings, Parameters]:
    """The settings; the parameters that are left are the task's options."""
    parameters = Parameters(config)
    dtype = parameters.text("dtype", "torch_dtype") or "auto"
    dtype = {"fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16"}.get(dtype, dtype)
    if dtype not in _DTYPES:
        raise ModelLoadError(
            f"parameter 'dtype' of model '{config['name']}' must be one of {', '.join(_DTYPES)}, found '{dtype}'"
        )
    settings = Settings(
        name=config["name"],
        model=parameters.text("model", "huggingface_model") or None,
        task=parameters.text("task") or None,
        device=parameters.text("device") or None,
        dtype=dtype,
        revision=parameters.text("revision") or None,
        trust_remote_code=bool(parameters.flag("trust_remote_code")),
        is_chat=bool(parameters.flag("chat")),
        is_streaming=parameters.flag("stream"),
        buckets=_buckets(config["name"], parameters.text("static_shapes")),
        thread_count=parameters.whole("INTRA_OP_THREAD_COUNT", "thread_count", least=1),
    )
    return settings, parameters


def read_defaults(form: TaskForm, parameters: Parameters, model: str) -> dict[str, Any]:
    """The configuration's values for the task's options, by the option's name."""
    found = {}
    for option in form.options:
        text = parameters.text(option.name, *option.aliases)
        if text is not None:
            found[option.name] = _checked(option, text, model)
    return found


def _checked(option: Option, text: str, model: str) -> Any:
    try:
        return option.value_of(text)
    except RequestError as error:
        raise ModelLoadError(f"parameter {error} in the configuration of model '{model}'") from None


def _buckets(model: str, text: str | None) -> tuple[int, ...]:
    """`"128,256"`, or `"true"` for powers of two."""
    if text is None or text.strip().lower() in ("", "false", "0", "no"):
        return ()
    if text.strip().lower() in ("true", "yes", "1"):
        return tuple(2**power for power in range(5, 15))
    try:
        return parse_buckets(text)
    except BucketError:
        raise ModelLoadError(
            f"parameter 'static_shapes' of model '{model}' must be true, false or lengths such as 128,256; found "
            f"'{text}'"
        ) from None
