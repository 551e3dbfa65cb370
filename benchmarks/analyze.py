"""The default search of `trireme analyze` beside an exhaustive one, on three models with different limits.

    python benchmarks/analyze.py
    python benchmarks/analyze.py --models wait --max-instances 3 --max-batch 16 --max-clients 64

For each model every configuration is measured under every load, then the default search runs under the same constraint,
more than once, as it is short. All winners are measured again in turns, because a machine is never the same for as long
as an exhaustive search takes; the ratios of their median throughputs are what counts, beside the ratios of the times.
Where the exhaustive winner itself does not keep the wish in turns, its median p99 says so: the machine was another one
when it was found.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from trireme.tools.analyze.measuring.trial_run import LoadedModel, TrialRunner
from trireme.tools.analyze.options import AnalyzeOptions, MeasuringOptions, ServerPlace
from trireme.tools.analyze.server.control import ModelControl
from trireme.tools.analyze.server.target import open_target
from trireme.tools.analyze.trial import Load, Result, Setting, Trial, result_from_json
from trireme.tools.perf.measure.interruption import Interruption

HEAD = """import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        rng = np.random.default_rng(0)
        {initialize}

    def execute(self, requests):
        rows = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        count = sum(map(len, rows))
        {execute}
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", one)]) for one in rows]
"""
MODELS = {
    "compute": (
        HEAD.format(
            initialize="self.matrix = rng.standard_normal((384, 384), dtype=np.float32) / 20",
            execute="x = np.ones((count, 384), np.float32)\n        for _ in range(24):\n            x = np.tanh(x @ self.matrix)",
        ),
        "p99<120ms",
    ),
    "wait": (HEAD.format(initialize="pass", execute="time.sleep(0.010 + 0.0005 * count)"), "p99<80ms"),
    "memory": (
        HEAD.format(
            initialize="self.table = np.ones(8_000_000, np.float32)",
            execute="self.table.sum()\n        for _ in range(count):\n            self.table[:400_000].sum()",
        ),
        "p99<150ms",
    ),
}
CONFIG = """backend: "python"
max_batch_size: 4
input [{ name: "IN" data_type: TYPE_FP32 dims: [ 16 ] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [ 16 ] }]
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--max-instances", type=int, default=4)
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--max-clients", type=int, default=128)
    parser.add_argument("--window-ms", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5, help="of the winners, in turns")
    parser.add_argument("--searches", type=int, default=3, help="by the default mode")
    parser.add_argument("--best", default="", help="INSTANCESxBATCHxCLIENTS of an exhaustive search made before")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # an instance is a thread of work; libraries' own would hide it
    print(f"{os.cpu_count()} cores, load average {', '.join(f'{value:.1f}' for value in os.getloadavg())}", flush=True)
    print("| model | wish | exhaustive | default | times | of the best throughput | loads measured |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for model in options.models.split(","):
            write_model(folder, model)
            print(row(folder, model, options), flush=True)
    print(f"load average {', '.join(f'{value:.1f}' for value in os.getloadavg())}")


def write_model(folder: pathlib.Path, model: str) -> None:
    version = folder / "models" / model / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODELS[model][0])
    (version.parent / "config.pbtxt").write_text(CONFIG)


def row(folder: pathlib.Path, model: str, options: argparse.Namespace) -> str:
    wish = MODELS[model][1]
    whole_s, whole = (0.0, []) if options.best else search(folder, model, "brute", options)
    best = known(model, options.best) if options.best else winner(whole, wish).trial
    searches = [search(folder, model, "fit", options) for _ in range(options.searches)]
    found = [winner(results, wish) for _, results in searches]
    shares = side_by_side(folder, model, best, [one.trial for one in found], options)
    cells = [
        options.best or f"{whole_s:.0f} s: {described(winner(whole, wish))}",
        "; ".join(f"{s:.0f} s: {described(one)}" for (s, _), one in zip(searches, found, strict=True)),
        "-" if options.best else ", ".join(f"1/{whole_s / s:.1f}" for s, _ in searches),
        shares,
        f"{len(whole)} / {', '.join(str(len(results)) for _, results in searches)}",
    ]
    return f"| {model} | {wish} | {' | '.join(cells)} |"


def known(model: str, text: str) -> Trial:
    """What an exhaustive search has found."""
    instances, batch, clients = map(int, text.split("x"))
    return Trial(((model, Setting(instances, batch)),), (Load(model, clients),))


def search(folder: pathlib.Path, model: str, mode: str, options: argparse.Namespace) -> tuple[float, list[Result]]:
    """Seconds of the whole command, and what it measured."""
    work = pathlib.Path(tempfile.mkdtemp(prefix=f"{model}-{mode}-", dir=folder))
    clients = [str(1 << power) for power in range(options.max_clients.bit_length())]
    command = [sys.executable, "-m", "trireme", "analyze", model, "-m", str(folder / "models")]
    command += ["--run-config-search-mode", mode, "--slo", MODELS[model][1], "--concurrency", ",".join(clients)]
    command += ["--run-config-search-max-instance-count", str(options.max_instances)]
    command += ["--run-config-search-max-model-batch-size", str(options.max_batch)]
    command += ["--measurement-interval", str(options.window_ms)]
    began = time.monotonic()
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    if done.returncode:
        sys.exit(f"{mode} of {model} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    content = json.loads((work / "checkpoints/0.ckpt").read_text())
    return seconds, [result_from_json(entry) for entry in content["results"]]


def winner(results: list[Result], wish: str) -> Result:
    limit = float(wish.partition("<")[2].removesuffix("ms"))
    good = [one for one in results if not one.is_probe and one.measured[0].metrics["perf_latency_p99"] <= limit]
    return max(good, key=lambda one: one.measured[0].metrics["perf_throughput"])


def described(result: Result) -> str:
    setting, metrics = result.trial.settings[0][1], result.measured[0].metrics
    name = "as it is" if setting.is_default else f"{setting.instances} x {setting.max_batch_size}"
    return f"{name}, {result.trial.loads[0].concurrency} clients, {metrics['perf_throughput']:.0f}/s"


def side_by_side(folder: pathlib.Path, model: str, best: Trial, found: list[Trial], options: argparse.Namespace) -> str:
    """How much of the exhaustive winner's throughput the others have, measured in turns, and the p99 of all."""
    options_of_server = AnalyzeOptions(repository=str(folder / "models"), place=ServerPlace())
    with open_target(options_of_server, contextlib.nullcontext) as target:
        control = ModelControl(target.client, target.quick_client, 5, print)
        loaded = LoadedModel(model, target.load_words(False))
        measuring = MeasuringOptions(window_ms=options.window_ms * 2)
        runner = TrialRunner(target.client, [loaded], measuring, None, Interruption(), lambda state: None)
        seen: dict[Trial, list[tuple[float, float]]] = {trial: [] for trial in (best, *found)}
        for _ in range(options.rounds):
            for trial, values in seen.items():
                control.use(model, trial.settings[0][1])
                metrics = runner.run(trial, is_probe=False).measured[0].metrics
                values.append((metrics["perf_throughput"], metrics["perf_latency_p99"]))
    rates = {trial: statistics.median(rate for rate, _ in values) for trial, values in seen.items()}
    p99s = {trial: statistics.median(p99 for _, p99 in values) for trial, values in seen.items()}
    shares = ", ".join(f"{rates[trial] / rates[best]:.3f}" for trial in found)
    return f"{shares}; p99 {p99s[best]:.0f} ms against {', '.join(f'{p99s[trial]:.0f}' for trial in found)} ms"


if __name__ == "__main__":
    main()
