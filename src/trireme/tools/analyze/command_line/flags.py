"""The settings that flags and the configuration file share, declared once: name, kind, and a sentence."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Flag:
    """`name` is the key in the file, and with dashes the flag."""

    name: str
    kind: str
    """text, whole, number, yes (a switch), list (with commas), many (may be given again)."""
    help: str
    short: str = ""
    metavar: str = ""


_OWN: Final = (
    Flag("slo", "many", "what must hold: p99<100ms, throughput>50, ttft<200ms, memory<2GB", metavar="BOUND"),
    Flag(
        "objective",
        "many",
        "what to make best, with a weight: perf_throughput (default), perf_latency_p99:2",
        metavar="TAG",
    ),
    Flag("apply", "yes", "write the best configuration into the model's folder, measure it, keep it if it holds"),
    Flag("url", "text", "a running server's address for the client protocol; measured there", "-u", "HOST:PORT"),
    Flag("header", "many", "a header of every request", "-H", "NAME:VALUE"),
    Flag("ca", "text", "certificates to trust", metavar="FILE"),
    Flag("shape", "many", "the shape of an input with variable dimensions", metavar="NAME:D,D"),
    Flag("input_data", "many", "zero, random (default), a folder, or a JSON file", metavar="WHAT"),
    Flag("string_length", "whole", "of random strings", metavar="N"),
    Flag("string_data", "text", "in place of random strings", metavar="TEXT"),
    Flag("measurement_interval", "whole", "ms of a window (default: by the model's latency)", metavar="MS"),
    Flag("progress", "text", "on, off or auto (default): a live line", metavar="WHEN"),
    Flag("fresh", "yes", "measure all anew, whatever the checkpoint has"),
)
_SERVER: Final = (
    Flag("model_repository", "text", "the folder of models: a server is started for it", "-m", "FOLDER"),
    Flag(
        "triton_launch_mode", "text", "local (default: a server of our own) or remote (a running one)", metavar="MODE"
    ),
    Flag("triton_http_endpoint", "text", "where its HTTP is (default: localhost:8000)", metavar="HOST:PORT"),
    Flag("triton_grpc_endpoint", "text", "where its gRPC is (default: localhost:8001)", metavar="HOST:PORT"),
    Flag("triton_metrics_url", "text", "where its metrics are (default: port 8002, /metrics)", metavar="URL"),
    Flag("triton_server_path", "text", "local: another program than this installation's server", metavar="FILE"),
    Flag("triton_output_path", "text", "local: the server's log", metavar="FILE"),
    Flag("client_protocol", "text", "grpc (default) or http", metavar="NAME"),
    Flag("client_max_retries", "whole", "seconds to wait for a server that went away (default: 50)", metavar="N"),
    Flag("reload_model_disable", "yes", "measure the model as it is, under several loads"),
    Flag("gpus", "list", "local: the accelerators that the server may use", metavar="ID,ID"),
)
_SEARCH: Final = (
    Flag("profile_models", "list", "the models", metavar="A,B"),
    Flag("run_config_search_mode", "text", "fit (default), brute, quick or optuna", metavar="MODE"),
    Flag("run_config_search_min_concurrency", "whole", "(default: 1)", metavar="N"),
    Flag("run_config_search_max_concurrency", "whole", "(default: 1024)", metavar="N"),
    Flag("run_config_search_min_instance_count", "whole", "(default: 1)", metavar="N"),
    Flag("run_config_search_max_instance_count", "whole", "(default: 5)", metavar="N"),
    Flag("run_config_search_min_model_batch_size", "whole", "(default: 1)", metavar="N"),
    Flag("run_config_search_max_model_batch_size", "whole", "(default: 128)", metavar="N"),
    Flag("run_config_search_min_request_rate", "whole", "(default: 16)", metavar="N"),
    Flag("run_config_search_max_request_rate", "whole", "(default: 8192)", metavar="N"),
    Flag("run_config_search_min_sequences", "whole", "of a language model's engine (default: 4)", metavar="N"),
    Flag("run_config_search_max_sequences", "whole", "of a language model's engine (default: 256)", metavar="N"),
    Flag("run_config_search_disable", "yes", "only what the file lists"),
    Flag("run_config_profile_models_concurrently_enable", "yes", "all models at once, each under load"),
    Flag("request_rate_search_enable", "yes", "load by requests per second"),
    Flag("early_exit_enable", "yes", "end a series where nothing is gained, also where loads are listed"),
    Flag("batch_sizes", "list", "of requests (default: 1)", "-b", "N,N"),
    Flag("concurrency", "list", "in place of the search", "-c", "N,N"),
    Flag("request_rate", "list", "in place of the search", "-r", "R,R"),
    Flag("bls_composing_models", "list", "models that the model calls: tuned with it", metavar="A,B"),
    Flag("cpu_only_composing_models", "list", "those of them that stay on the CPU", metavar="A,B"),
    Flag("optuna_min_percentage_of_search_space", "number", "(default: 5)", metavar="P"),
    Flag("optuna_max_percentage_of_search_space", "number", "(default: 10)", metavar="P"),
    Flag("optuna_min_trials", "whole", "(default: 20)", metavar="N"),
    Flag("optuna_max_trials", "whole", "(default: 200)", metavar="N"),
    Flag("optuna_early_exit_threshold", "whole", "trials without a gain that end it (default: 10)", metavar="N"),
    Flag("latency_budget", "number", "p99 in ms that must be kept", metavar="MS"),
    Flag("min_throughput", "number", "inferences per second that must be reached", metavar="N"),
)
_OUTPUT: Final = (
    Flag("config_file", "text", "a YAML file with these settings", "-f", "FILE"),
    Flag("checkpoint_directory", "text", "(default: ./checkpoints)", "-s", "FOLDER"),
    Flag("export_path", "text", "where results and reports go (default: .)", "-e", "FOLDER"),
    Flag("output_model_repository_path", "text", "a config.pbtxt for each variant (default: ./output_model_repository)",
         metavar="FOLDER"),
    Flag("override_output_model_repository", "yes", "write over what is there"),
    Flag("output_formats", "list", "html (default), pdf, csv", "-o", "NAME,NAME"),
    Flag("filename_model_inference", "text", "(default: metrics-model-inference.csv)", metavar="NAME"),
    Flag("filename_model_gpu", "text", "(default: metrics-model-gpu.csv)", metavar="NAME"),
    Flag("filename_server_only", "text", "(default: metrics-server-only.csv)", metavar="NAME"),
    Flag("inference_output_fields", "list", "columns", metavar="TAG,TAG"),
    Flag("gpu_output_fields", "list", "columns", metavar="TAG,TAG"),
    Flag("server_output_fields", "list", "columns", metavar="TAG,TAG"),
    Flag("num_configs_per_model", "whole", "variants in summaries (default: 3)", metavar="N"),
    Flag("num_top_model_configs", "whole", "variants of all models together in one more table", metavar="N"),
    Flag("skip_summary_reports", "yes", "no pages and plots"),
    Flag("skip_detailed_reports", "yes", "no page for each variant"),
    Flag("perf_analyzer_timeout", "number", "seconds that a load may take (default: 600)", metavar="S"),
    Flag("perf_analyzer_max_auto_adjusts", "whole", "how often a window is doubled (default: 10)", metavar="N"),
    Flag("monitoring_interval", "number", "seconds between looks at the metrics (default: 1)", "-i", "S"),
    Flag("duration_seconds", "number", "how long the server is watched without load (default: 1)", "-d", "S"),
)  # fmt: skip
GROUPS: Final = (("goals", _OWN), ("server", _SERVER), ("search", _SEARCH), ("results", _OUTPUT))
FLAGS: Final = {flag.name: flag for _, flags in GROUPS for flag in flags}

_ALWAYS = "processor and memory are always measured"
_NO_DOCKER = "no container is started"
_OWN_LOAD = "the load comes from this installation, in this process"
ACCEPTED: Final = {
    "collect_cpu_metrics": ("yes", _ALWAYS),
    "always_report_gpu_metrics": ("yes", "what the devices report is always shown"),
    "dcgm_disable": ("yes", "devices are read from the server's metrics"),
    "use_concurrency_formula": ("yes", "the search chooses the loads"),
    "perf_output": ("yes", _OWN_LOAD),
    "perf_output_path": ("text", _OWN_LOAD),
    "perf_analyzer_path": ("text", _OWN_LOAD),
    "perf_analyzer_cpu_util": ("number", _OWN_LOAD),
    "triton_docker_image": ("text", _NO_DOCKER),
    "triton_docker_mounts": ("list", _NO_DOCKER),
    "triton_docker_labels": ("list", _NO_DOCKER),
    "triton_docker_args": ("list", _NO_DOCKER),
    "triton_docker_shm_size": ("text", _NO_DOCKER),
    "triton_install_path": ("text", "the server of this installation is started"),
    "model_type": ("text", "whether a model writes texts is seen by its configuration"),
    "log_level": ("text", "-q has results alone"),
    "plots": ("text", "the report has plots of its own"),
}
"""Settings of the original that decide nothing here: their kind, and what happens in their place."""

FILE_ONLY: Final = (
    "objectives",
    "constraints",
    "weighting",
    "perf_analyzer_flags",
    "genai_perf_flags",
    "triton_server_flags",
    "triton_server_environment",
    "report_model_configs",
    "analysis_models",
)


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds every flag; what is not given stays away from the result."""
    for title, flags in GROUPS:
        group = parser.add_argument_group(title)
        for flag in flags:
            _add(group, flag.name, flag.kind, flag.help, flag.short, flag.metavar)
    for name, (kind, _) in ACCEPTED.items():
        _add(parser, name, kind, argparse.SUPPRESS, "", "")


def without_effect(given: Iterable[str]) -> list[str]:
    """A sentence for each setting that decides nothing."""
    return [f"{name} has no effect: {ACCEPTED[name][1]}" for name in given if name in ACCEPTED]


def _add(group: argparse._ActionsContainer, name: str, kind: str, text: str, short: str, metavar: str) -> None:
    names = [f"--{name.replace('_', '-')}", *([short] if short else [])]
    if kind == "yes":
        group.add_argument(*names, dest=name, action="store_true", default=argparse.SUPPRESS, help=text)
    elif kind == "many":
        group.add_argument(
            *names, dest=name, action="append", default=argparse.SUPPRESS, metavar=metavar or None, help=text
        )
    else:
        group.add_argument(*names, dest=name, default=argparse.SUPPRESS, metavar=metavar or None, help=text)
