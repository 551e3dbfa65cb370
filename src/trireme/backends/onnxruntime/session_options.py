"""ONNX Runtime's session options and execution providers, from a model's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trireme.backends.compiled.model_load import ModelLoadError, backend_settings, thread_share
from trireme.backends.compiled.parameters import Parameters
from trireme.backends.python.pb_utils.logger import Logger

_ACCELERATORS = {
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "dnnl": "DnnlExecutionProvider",
}
_TENSORRT_NAMES = {
    "max_workspace_size_bytes": "trt_max_workspace_size",
    "int8_calibration_table_name": "trt_int8_calibration_table_name",
    "int8_use_native_calibration_table": "trt_int8_use_native_calibration_table",
}
_CUDA_PARAMETERS = ("cudnn_conv_algo_search", "gpu_mem_limit", "arena_extend_strategy", "do_copy_in_default_stream")
_CUDA_VALUES = {
    "cudnn_conv_algo_search": {"0": "EXHAUSTIVE", "1": "HEURISTIC", "2": "DEFAULT"},
    "arena_extend_strategy": {"0": "kNextPowerOfTwo", "1": "kSameAsRequested"},
}
_SPIN_DURATION = "session.intra_op.spin_duration_us"
_ENTRIES = (
    "session.use_device_allocator_for_initializers",
    "session.disable_prepacking",
    "session.intra_op.allow_spinning",
    "session.inter_op.allow_spinning",
    _SPIN_DURATION,
)
_SPIN_US = "50"
"""A session keeps its threads, as many as if it were alone. Where others compute too, threads that wait long without
sleeping take the cores from them: on 16 cores two busy models did 3 and four 5 times as much with this limit, and one
alone lost nothing."""


def session_options(ort: Any, config: Mapping[str, Any], parameters: Parameters) -> Any:
    """The options of the session; raises ModelLoadError for a value that does not fit its key."""
    options = ort.SessionOptions()
    given = backend_settings()
    intra = parameters.whole("intra_op_thread_count")
    if intra is None:
        intra = int(given.get("intra_op_thread_count", thread_share()))
    options.intra_op_num_threads = intra
    inter = parameters.whole("inter_op_thread_count")
    options.inter_op_num_threads = int(given.get("inter_op_thread_count", 1)) if inter is None else inter
    if parameters.whole("execution_mode"):
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    level = config.get("optimization", {}).get("graph", {}).get("level", 0)
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = {
        -1: levels.ORT_ENABLE_BASIC,
        1: levels.ORT_ENABLE_EXTENDED,
        2: levels.ORT_DISABLE_ALL,
    }.get(level, levels.ORT_ENABLE_ALL)
    for name, attribute in (("enable_mem_arena", "enable_cpu_mem_arena"), ("enable_mem_pattern", "enable_mem_pattern")):
        is_on = parameters.flag(name)
        if is_on is not None:
            setattr(options, attribute, is_on)
    options.add_session_config_entry(_SPIN_DURATION, _SPIN_US)
    for key in _ENTRIES:
        text = parameters.text(key)
        if text is not None:
            options.add_session_config_entry(key, text)
    return options


def providers(
    ort: Any, config: Mapping[str, Any], parameters: Parameters, kind: str, device_id: int
) -> list[tuple[str, dict[str, str]]]:
    """The execution providers in the order in which they are tried, the CPU last.

    Raises ModelLoadError where the instance is to run on a GPU and this build of ONNX Runtime cannot.
    """
    available = ort.get_available_providers()
    cuda = {name: parameters.text(name) for name in _CUDA_PARAMETERS}
    chosen: list[tuple[str, dict[str, str]]] = []
    accelerators = config.get("optimization", {}).get("execution_accelerators", {})
    field = "gpu_execution_accelerator" if kind == "GPU" else "cpu_execution_accelerator"
    for entry in accelerators.get(field, ()):
        provider = _ACCELERATORS.get(entry["name"])
        if provider not in available:
            Logger.log_warn(
                f"model '{config['name']}' asks for the accelerator '{entry['name']}', which this build of ONNX "
                f"Runtime does not have (it has {', '.join(available)}): ignored"
            )
        elif provider is not None:
            chosen.append((provider, _accelerator_options(entry, device_id if kind == "GPU" else None)))
    if kind == "GPU":
        gpu = [name for name in ("CUDAExecutionProvider", "ROCMExecutionProvider") if name in available]
        if not gpu and not chosen:
            raise ModelLoadError(
                f"model '{config['name']}' has an instance on a GPU, and this build of ONNX Runtime has only "
                f"{', '.join(available)}; install 'onnxruntime-gpu' in place of 'onnxruntime', or use KIND_CPU"
            )
        if gpu and all(name != gpu[0] for name, _ in chosen):
            given = {name: _CUDA_VALUES.get(name, {}).get(text, text) for name, text in cuda.items() if text}
            chosen.append((gpu[0], {"device_id": str(device_id), **given}))
    return [*chosen, ("CPUExecutionProvider", {})]


def load_gpu_libraries(ort: Any) -> None:
    """Finds the libraries of CUDA and cuDNN that were installed as Python packages, which no loader looks for."""
    if hasattr(ort, "preload_dlls"):
        ort.preload_dlls()


def check_providers(name: str, chosen: list[tuple[str, dict[str, str]]], active: list[str], kind: str) -> None:
    """ONNX Runtime goes on with what is left where a provider does not start: on a GPU that would be the processor,
    and raises ModelLoadError here."""
    missing = [provider for provider, _ in chosen if provider not in active]
    if not missing:
        return
    advice = "the server's log has ONNX Runtime's reason, most often a library of CUDA or cuDNN that is not there"
    if kind == "GPU" and set(active) == {"CPUExecutionProvider"}:
        raise ModelLoadError(
            f"model '{name}' has an instance on a GPU, and {', '.join(missing)} did not start; {advice}: "
            "`pip install 'onnxruntime-gpu[cuda,cudnn]'` brings them, or use KIND_CPU"
        )
    Logger.log_warn(f"model '{name}' runs with {', '.join(active)}: {', '.join(missing)} did not start; {advice}")


def _accelerator_options(entry: Mapping[str, Any], device_id: int | None) -> dict[str, str]:
    options = {} if device_id is None else {"device_id": str(device_id)}
    for key, value in entry.get("parameters", {}).items():
        if key == "precision_mode":
            if value in ("FP16", "INT8"):
                options[f"trt_{value.lower()}_enable"] = "1"
        else:
            options[_TENSORRT_NAMES.get(key, key)] = value
    return options
