"""The config.pbtxt of a model on NeuronCores."""

from __future__ import annotations

from collections.abc import Iterable

from trireme.core.datatype import to_config
from trireme.tools.neuron_model.options import TENSORFLOW, BatchingOptions, NeuronModelOptions, TensorOption


def config_text(options: NeuronModelOptions, compiled_model: str) -> str:
    """The whole file; `compiled_model` is the path as the server is to read it."""
    backend = "python" if options.writes_python_model else "neuron"
    parts = [
        f'name: "{_quoted(options.name)}"\nbackend: "{backend}"\nmax_batch_size: {options.batching.max_batch_size}\n'
    ]
    if options.batching.is_dynamic:
        parts.append(_dynamic_batching(options.batching))
    parts += [_tensor("input", tensor) for tensor in options.inputs]
    parts += [_tensor("output", tensor) for tensor in options.outputs]
    parts.append(f"instance_group [\n  {{\n    kind: KIND_MODEL\n    count: {options.instance_count}\n  }}\n]\n")
    parts.append("".join(_parameter(key, value) for key, value in _parameters(options, compiled_model)))
    return "\n".join(parts)


def _dynamic_batching(batching: BatchingOptions) -> str:
    lines = []
    if batching.preferred_size is not None:
        lines.append(f"  preferred_batch_size: {batching.preferred_size}\n")
    if batching.max_queue_delay_us is not None:
        lines.append(f"  max_queue_delay_microseconds: {batching.max_queue_delay_us}\n")
    return "dynamic_batching {\n" + "".join(lines) + "}\n"


def _tensor(field: str, tensor: TensorOption) -> str:
    dims = ", ".join(map(str, tensor.dims))
    body = f'    name: "{_quoted(tensor.name)}"\n    data_type: {to_config(tensor.datatype)}\n    dims: [ {dims} ]\n'
    return f"{field} [\n  {{\n{body}  }}\n]\n"


def _parameters(options: NeuronModelOptions, compiled_model: str) -> Iterable[tuple[str, object]]:
    yield "COMPILED_MODEL", compiled_model
    yield "MODEL_TYPE", options.model_type
    yield "NEURON_CORE_START_INDEX", options.cores.first
    yield "NEURON_CORE_END_INDEX", options.cores.last
    yield "NUM_THREADS_PER_CORE", options.threads_per_core
    if not options.batching.joins_requests:
        yield "DISABLE_BATCH_REQUESTS_TO_NEURON", "true"
    if options.model_type == TENSORFLOW:
        yield "TAG_SET", options.tag_set
        yield "SIGNATURE_DEF_KEY", options.signature_key
    if options.compiled_batch_size is not None:
        yield "COMPILED_BATCH_SIZE", options.compiled_batch_size
    if options.is_inf2:
        yield "INF2", "true"


def _parameter(key: str, value: object) -> str:
    return f'parameters: {{ key: "{key}", value: {{ string_value: "{_quoted(str(value))}" }} }}\n'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
