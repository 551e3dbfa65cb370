"""The default search of `trireme analyze` beside an exhaustive one, on three models with different limits.

    python benchmarks/analyze.py
    python benchmarks/analyze.py --max-batch 32 --max-clients 128 --window-ms 300 --rounds 5 --searches 3
    python benchmarks/analyze.py --models memory --known 2x16x64

For each model every configuration is measured under every load, then the default search runs under the same bound, more
than once, as it is short. Of 147 noisy measurements the best is a lucky one, and a machine is never the same for as long
as an exhaustive search takes. So the exhaustive search's best configurations and those that the default search has found
are measured again, in turns, in another order each time. What counts is the median, over the turns, of the throughput of
what was found by that of the exhaustive search's best which keeps the bound in turns as well. Ratios of the times stand
beside it. The first command has 147 loads for each model, a second or so for each: some 8 to 10 minutes in all on two
quiet cores, a third of that with `--models memory`; a busy machine takes twice as long.
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
from dataclasses import dataclass, field

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


@dataclass(frozen=True)
class Turns:
    """What was seen of a trial, a value for each turn."""

    rates: list[float] = field(default_factory=list)
    p99s_ms: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def p99_ms(self) -> float:
        return statistics.median(self.p99s_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--max-instances", type=int, default=4)
    parser.add_argument("--max-batch", type=int, default=16)
    parser.add_argument("--max-clients", type=int, default=64)
    parser.add_argument("--window-ms", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=4, help="of the winners, in turns")
    parser.add_argument("--searches", type=int, default=2, help="by the default mode")
    parser.add_argument("--best", type=int, default=2, help="so many of the exhaustive search are measured again")
    parser.add_argument("--known", default="", help="INSTANCESxBATCHxCLIENTS of an exhaustive search made before")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # an instance is a thread of work; libraries' own would hide it
    began = time.monotonic()
    print(f"{os.cpu_count()} cores, load average {', '.join(f'{value:.1f}' for value in os.getloadavg())}", flush=True)
    heads = "exhaustive: loads, seconds | its best, in turns | default: loads, seconds | time | what it found, in turns"
    print(f"| model, bound | {heads} | of the best throughput: median, least, most of the turns |")
    print("|---" * 7 + "|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for model in options.models.split(","):
            write_model(folder, model)
            show(folder, model, options)
    loads = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{time.monotonic() - began:.0f} s, load average {loads}")


def write_model(folder: pathlib.Path, model: str) -> None:
    version = folder / "models" / model / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODELS[model][0])
    (version.parent / "config.pbtxt").write_text(CONFIG)


def show(folder: pathlib.Path, model: str, options: argparse.Namespace) -> None:
    """A line for every run of the default search."""
    bound, limit_ms = MODELS[model][1], limit_of(MODELS[model][1])
    whole_s, whole = (0.0, []) if options.known else search(folder, model, "brute", options)
    leading = [known(model, options.known)] if options.known else best_of(whole, limit_ms, options.best)
    searches = [search(folder, model, "fit", options) for _ in range(options.searches)]
    found = [best_of(results, limit_ms, 1)[0] for _, results in searches]
    turns = side_by_side(folder, model, [*leading, *found], options)
    keeping = [trial for trial in leading if turns[trial].p99_ms <= limit_ms]
    best = max(keeping or leading, key=lambda trial: turns[trial].rate)
    for (seconds, results), trial in zip(searches, found, strict=True):
        shares = [one / other for one, other in zip(turns[trial].rates, turns[best].rates, strict=True)]
        cells = [
            f"{model}, {bound}",
            "known" if options.known else f"{len(whole)}, {whole_s:.0f} s",
            described(best, turns[best], limit_ms),
            f"{len(results)}, {seconds:.0f} s",
            "-" if options.known else f"1/{whole_s / seconds:.1f}",
            described(trial, turns[trial], limit_ms),
            f"{statistics.median(shares):.3f}, {min(shares):.3f}, {max(shares):.3f}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


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


def limit_of(bound: str) -> float:
    """Milliseconds."""
    return float(bound.partition("<")[2].removesuffix("ms"))


def best_of(results: list[Result], limit_ms: float, count: int) -> list[Trial]:
    """Of what was measured at length: the most throughput within the limit, or what comes nearest to it."""
    at_length = [one for one in results if not one.is_probe]
    good = [one for one in at_length if one.measured[0].metrics["perf_latency_p99"] <= limit_ms]
    if not good:
        return [min(at_length, key=lambda one: one.measured[0].metrics["perf_latency_p99"]).trial]
    good.sort(key=lambda one: one.measured[0].metrics["perf_throughput"], reverse=True)
    return [one.trial for one in good[:count]]


def described(trial: Trial, turns: Turns, limit_ms: float) -> str:
    setting = trial.settings[0][1]
    name = "as it is" if setting.is_default else f"{setting.instances} x {setting.max_batch_size}"
    broken = "" if turns.p99_ms <= limit_ms else ", more than the bound"
    return f"{name}, {trial.loads[0].concurrency} clients: {turns.rate:.0f}/s, p99 {turns.p99_ms:.0f} ms{broken}"


def side_by_side(
    folder: pathlib.Path, model: str, trials: list[Trial], options: argparse.Namespace
) -> dict[Trial, Turns]:
    """All trials once in every turn; where a turn begins changes."""
    options_of_server = AnalyzeOptions(repository=str(folder / "models"), place=ServerPlace())
    turns: dict[Trial, Turns] = {trial: Turns() for trial in trials}
    with open_target(options_of_server, contextlib.nullcontext) as target:
        control = ModelControl(target.client, target.quick_client, 5, print)
        loaded = LoadedModel(model, target.load_words(False))
        measuring = MeasuringOptions(window_ms=options.window_ms * 2)
        runner = TrialRunner(target.client, [loaded], measuring, None, Interruption(), lambda state: None)
        for number in range(options.rounds):
            order = list(turns)
            first = number % len(order)
            for trial in order[first:] + order[:first]:
                control.use(model, trial.settings[0][1])
                metrics = runner.run(trial, is_probe=False).measured[0].metrics
                turns[trial].rates.append(metrics["perf_throughput"])
                turns[trial].p99s_ms.append(metrics["perf_latency_p99"])
    return turns


if __name__ == "__main__":
    main()
