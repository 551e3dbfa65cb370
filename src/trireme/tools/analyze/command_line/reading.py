"""From settings to options: flags before the file, the file before defaults."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from trireme.tools.analyze.command_line.models import read_models
from trireme.tools.analyze.command_line.values import Values
from trireme.tools.analyze.errors import InputError
from trireme.tools.analyze.metrics import METRICS, PARAMETER_HEADERS
from trireme.tools.analyze.options import (
    SEARCH_MODES,
    AnalyzeOptions,
    MeasuringOptions,
    OutputOptions,
    SearchOptions,
    ServerPlace,
)
from trireme.tools.client.connect import KEY_VARIABLE

_LAUNCH_MODES = {
    "docker": "a container is not needed: --triton-launch-mode local starts a server of this installation, remote "
    "measures one that runs, also in a container",
    "c_api": "this server is no library: --triton-launch-mode local starts one of this installation",
}


def read_analyze_options(
    given: Mapping[str, Any], positional: Sequence[str] = (), is_friendly: bool = False, verbosity: int = 0
) -> AnalyzeOptions:
    """`is_friendly` measures the running server unless a repository is given. Raises InputError."""
    values = Values(given)
    models = read_models(values, positional)
    if not models:
        raise InputError("which model? Name it with --profile-models" + (", or as a word" if is_friendly else ""))
    options = AnalyzeOptions(
        models=models,
        repository=values.text("model_repository"),
        place=_place(values, is_friendly),
        search=_search(values),
        measuring=_measuring(values),
        output=read_output_options(values, verbosity),
        called_models=tuple(values.words("bls_composing_models")),
        cpu_only_called=tuple(values.words("cpu_only_composing_models")),
        applies=values.is_on("apply"),
        ignores_checkpoint=values.is_on("fresh"),
    )
    if options.place.launch_mode == "local" and options.repository is None:
        raise InputError("--model-repository is missing: the folder of models that a server is started for")
    if options.applies and options.repository is None:
        raise InputError("--apply writes into the model's folder: say with --model-repository where that is")
    return options


def read_output_options(values: Values, verbosity: int = 0) -> OutputOptions:
    """What the other commands have as well."""
    defaults = OutputOptions()
    when = values.text("progress") or "auto"
    if when not in ("auto", "on", "off"):
        raise InputError(f"--progress is on, off or auto, not '{when}'")
    return OutputOptions(
        export_path=values.text("export_path") or defaults.export_path,
        checkpoint_folder=values.text("checkpoint_directory") or defaults.checkpoint_folder,
        output_repository=values.text("output_model_repository_path") or defaults.output_repository,
        may_override=values.is_on("override_output_model_repository"),
        inference_file=values.text("filename_model_inference") or defaults.inference_file,
        gpu_file=values.text("filename_model_gpu") or defaults.gpu_file,
        server_file=values.text("filename_server_only") or defaults.server_file,
        inference_fields=_fields(values, "inference_output_fields", defaults.inference_fields),
        gpu_fields=_fields(values, "gpu_output_fields", defaults.gpu_fields),
        server_fields=_fields(values, "server_output_fields", defaults.server_fields),
        configs_per_model=values.whole("num_configs_per_model", defaults.configs_per_model, 1),
        top_configs=values.whole("num_top_model_configs", 0),
        has_summary=not values.is_on("skip_summary_reports"),
        has_details=not values.is_on("skip_detailed_reports"),
        formats=tuple(values.words("output_formats")) or defaults.formats,
        verbosity=verbosity,
        shows_progress=None if when == "auto" else when == "on",
    )


def _place(values: Values, is_friendly: bool) -> ServerPlace:
    usual = "remote" if is_friendly and "model_repository" not in values else "local"
    mode = values.text("triton_launch_mode") or ("remote" if "url" in values else usual)
    if mode in _LAUNCH_MODES:
        raise InputError(f"--triton-launch-mode {mode}: {_LAUNCH_MODES[mode]}")
    if mode not in ("local", "remote"):
        raise InputError(f"--triton-launch-mode is local or remote, not '{mode}'")
    protocol = (values.text("client_protocol") or "grpc").lower()
    if protocol not in ("http", "grpc"):
        raise InputError(f"--client-protocol is http or grpc, not '{protocol}'")
    url = values.text("url")
    environment = _mapping(values, "triton_server_environment")
    gpus = values.words("gpus")
    if gpus and gpus != ["all"]:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return ServerPlace(
        launch_mode=mode,
        http_url=values.text("triton_http_endpoint") or (url if protocol == "http" else None),
        grpc_url=values.text("triton_grpc_endpoint") or (url if protocol == "grpc" else None),
        metrics_url=values.text("triton_metrics_url"),
        protocol=protocol,
        headers=_headers(values),
        ca_file=values.text("ca"),
        program=values.text("triton_server_path"),
        flags=_mapping(values, "triton_server_flags"),
        environment=environment,
        log_file=values.text("triton_output_path"),
        max_retries=values.whole("client_max_retries", 50),
        is_reload_disabled=values.is_on("reload_model_disable"),
    )


def _search(values: Values) -> SearchOptions:
    defaults = SearchOptions()
    mode = values.text("run_config_search_mode")
    if mode is not None and mode not in SEARCH_MODES:
        raise InputError(f"--run-config-search-mode is one of {', '.join(SEARCH_MODES)}, not '{mode}'")

    def bounds(name: str, least: int, most: int) -> tuple[int, int]:
        low = values.whole(f"run_config_search_min_{name}", least, 1)
        high = values.whole(f"run_config_search_max_{name}", max(most, low), 1)
        if high < low:
            raise InputError(f"run_config_search_max_{name} is {high}, less than the least, {low}")
        return low, high

    concurrency = bounds("concurrency", defaults.min_concurrency, defaults.max_concurrency)
    instances = bounds("instance_count", defaults.min_instances, defaults.max_instances)
    batch = bounds("model_batch_size", defaults.min_batch_size, defaults.max_batch_size)
    rate = bounds("request_rate", defaults.min_request_rate, defaults.max_request_rate)
    sequences = bounds("sequences", defaults.min_sequences, defaults.max_sequences)
    return SearchOptions(
        mode=mode,
        min_concurrency=concurrency[0],
        max_concurrency=concurrency[1],
        min_instances=instances[0],
        max_instances=instances[1],
        min_batch_size=batch[0],
        max_batch_size=batch[1],
        min_request_rate=rate[0],
        max_request_rate=rate[1],
        by_request_rate=values.is_on("request_rate_search_enable"),
        is_disabled=values.is_on("run_config_search_disable"),
        is_together=values.is_on("run_config_profile_models_concurrently_enable"),
        min_sequences=sequences[0],
        max_sequences=sequences[1],
        min_share=values.number("optuna_min_percentage_of_search_space", defaults.min_share),
        max_share=values.number("optuna_max_percentage_of_search_space", defaults.max_share),
        min_trials=values.whole("optuna_min_trials", defaults.min_trials, 1),
        max_trials=values.whole("optuna_max_trials", defaults.max_trials, 1),
        early_exit_trials=values.whole("optuna_early_exit_threshold", defaults.early_exit_trials, 1),
        exits_early=values.is_on("early_exit_enable") or not ("concurrency" in values or "request_rate" in values),
    )


def _measuring(values: Values) -> MeasuringOptions:
    defaults = MeasuringOptions()
    return MeasuringOptions(
        window_ms=values.whole("measurement_interval", 0, 1) or None,
        max_adjustments=values.whole("perf_analyzer_max_auto_adjusts", defaults.max_adjustments),
        timeout_s=values.number("perf_analyzer_timeout", defaults.timeout_s, 1),
        metrics_interval_s=values.number("monitoring_interval", defaults.metrics_interval_s, 0.01),
        idle_s=values.number("duration_seconds", defaults.idle_s),
    )


def _fields(values: Values, name: str, defaults: tuple[str, ...]) -> tuple[str, ...]:
    found = tuple(values.words(name)) or defaults
    for field in found:
        if field not in PARAMETER_HEADERS and field not in METRICS:
            raise InputError(f"{name}: there is no column '{field}'")
    return found


def _mapping(values: Values, name: str) -> dict[str, str]:
    value = values.raw(name) or {}
    if not isinstance(value, Mapping):
        raise InputError(f"{name} is a mapping of names and values, not {value!r}")
    return {str(key): str(one).lower() if isinstance(one, bool) else str(one) for key, one in value.items()}


def _headers(values: Values) -> tuple[tuple[str, str], ...]:
    """Those that are given, and the environment's key where none of them is one."""
    headers = [_header(text) for text in values.texts("header")]
    key = os.environ.get(KEY_VARIABLE)
    if key and all(name.lower() != "authorization" for name, _ in headers):
        headers.append(("Authorization", f"Bearer {key}"))
    return tuple(headers)


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise InputError(f"a header is a name, a colon and a value, not '{text}'")
    return name.strip(), value.strip()
