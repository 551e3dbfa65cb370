"""Goals, files and flags, read into options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trireme.tools.analyze.command import run_subcommand
from trireme.tools.analyze.command_line.config_file import read_config_file
from trireme.tools.analyze.command_line.models import perf_words
from trireme.tools.analyze.command_line.reading import read_analyze_options
from trireme.tools.analyze.command_line.slo import read_constraint, read_objective
from trireme.tools.analyze.errors import InputError
from trireme.tools.analyze.options import AnalyzeOptions, Constraint


def read(is_friendly: bool = True, **given: Any) -> AnalyzeOptions:
    return read_analyze_options({"profile_models": "m", **given}, (), is_friendly)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p99<100ms", Constraint("perf_latency_p99", most=100.0)),
        ("p95 <= 2s", Constraint("perf_latency_p95", most=2000.0)),
        ("avg<500us", Constraint("perf_latency_avg", most=0.5)),
        ("throughput>50", Constraint("perf_throughput", least=50.0)),
        ("throughput>=50infer/s", Constraint("perf_throughput", least=50.0)),
        ("ttft<200ms", Constraint("time_to_first_token_p99", most=200.0)),
        ("memory<2GB", Constraint("cpu_used_ram", most=2000.0)),
        ("gpu_used_memory<100", Constraint("gpu_used_memory", most=100.0)),
    ],
)
def test_a_constraint_is_a_bound(text: str, expected: Constraint) -> None:
    assert read_constraint(text) == expected


@pytest.mark.parametrize("text", ["", "p99", "p99=5", "p98<5ms", "p99<5MB", "throughput>5ms", "p99<ms", "p99<1.2.3ms"])
def test_a_constraint_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_constraint(text)


def test_an_objective_has_a_weight() -> None:
    assert read_objective("perf_latency_p99:2") == ("perf_latency_p99", 2.0)
    assert read_objective("throughput") == ("perf_throughput", 1.0)
    for text in ("nothing", "p99:0", "p99:x"):
        with pytest.raises(InputError):
            read_objective(text)


def test_budgets_and_bounds_are_constraints() -> None:
    options = read(latency_budget="100", min_throughput=5, slo=["p95<50ms,avg<9ms"])
    assert options.models[0].goals.constraints == (
        Constraint("perf_latency_p99", most=100.0),
        Constraint("perf_throughput", least=5.0),
        Constraint("perf_latency_p95", most=50.0),
        Constraint("perf_latency_avg", most=9.0),
    )


def test_a_models_own_settings_come_before_those_of_all() -> None:
    options = read(
        profile_models={
            "a": {
                "objectives": ["perf_latency_p99"],
                "parameters": {"concurrency": {"start": 2, "stop": 6, "step": 2}},
            },
            "b": None,
        },
        objectives={"perf_throughput": 3, "perf_latency_p99": 2},
        concurrency="8,4",
    )
    first, second = options.models
    assert (dict(first.goals.objectives), first.concurrencies) == ({"perf_latency_p99": 1.0}, (2, 4, 6))
    assert dict(second.goals.objectives) == {"perf_throughput": 3.0, "perf_latency_p99": 2.0}
    assert second.concurrencies == (4, 8)


def test_the_command_measures_a_running_server_unless_it_is_given_a_repository() -> None:
    assert read().place.launch_mode == "remote"
    assert read(model_repository="r").place.launch_mode == "local"
    assert read(model_repository="r", url="h:1").place.launch_mode == "remote"
    with pytest.raises(InputError, match="--model-repository"):
        read(is_friendly=False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"triton_launch_mode": "c_api"}, "no library"),
        ({"run_config_search_mode": "slow"}, "fit, brute, quick, optuna"),
        ({"run_config_search_min_instance_count": 4, "run_config_search_max_instance_count": 2}, "less than the least"),
        ({"client_protocol": "smoke"}, "http or grpc"),
        ({"inference_output_fields": "model_name,speed"}, "speed"),
        ({"constraints": {"speed": {"max": 1}}}, "speed"),
        ({"constraints": {"perf_throughput": {"most": 1}}}, "min or max"),
        ({"concurrency": "none"}, "concurrency"),
        ({"header": "nonsense"}, "a colon"),
        ({"perf_analyzer_flags": "x"}, "mapping"),
        ({"weighting": 0}, "weighting"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(**given)


def test_a_least_above_the_usual_most_moves_the_most() -> None:
    search = read(run_config_search_min_instance_count=9).search
    assert (search.min_instances, search.max_instances) == (9, 9)


def test_flags_of_the_load_generator_become_words() -> None:
    flags = {"shape": ["A:1", "B:2"], "streaming": True, "async": False, "percentile": 95, "H": "a:b", "url": "ours"}
    assert perf_words(flags, "here") == (
        "--shape", "A:1", "--shape", "B:2", "--streaming", "--percentile", "95", "-H", "a:b",
    )  # fmt: skip


def test_a_file_is_yaml_or_json(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("profile_models: [a, b]\nconcurrency: 4\n")
    assert read_config_file(str(path)) == {"profile_models": ["a", "b"], "concurrency": 4}
    path.write_text('{"profile_models": "a"}')
    assert read_config_file(str(path)) == {"profile_models": "a"}
    path.write_text("")
    assert read_config_file(str(path)) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "no settings"),
        ("profile_model: a", "did you mean 'profile_models'"),
        ("profile_models: {a: {objective: 1}}", "did you mean 'objectives'"),
        ("profile_models: {a: {parameters: {batch_size: 1}}}", "did you mean 'batch_sizes'"),
        ("profile_models: {a: 5}", "no mapping"),
        ("a: 'b\n", "line "),
        ("[" * 100_000 + "]" * 100_000, "f.yaml' cannot be read: it is nested too deeply"),
        ("a: " + "[" * 5_000 + "]" * 5_000, "f.yaml' cannot be read: it is nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_followed_says_where(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_config_file(str(path))


def test_the_environments_key_is_sent_unless_another_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_API_KEY", "k1")
    assert read().place.headers == (("Authorization", "Bearer k1"),)
    assert read(header=["authorization: Bearer k2"]).place.headers == (("authorization", "Bearer k2"),)


@pytest.mark.parametrize(("words", "told"), [((), ["dcgm_disable", "plots"]), (("-q",), [])], ids=["plain", "quiet"])
def test_settings_without_effect_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told: list[str]
) -> None:
    path = tmp_path / "goals.json"
    path.write_text('{"plots": {"own": {}}, "latency_budget": 5}')
    code = run_subcommand("model-analyzer", ["profile", *words, "--dcgm-disable", "-f", str(path)])
    lines = capsys.readouterr().err.splitlines()
    assert (code, "which model?" in lines[-1]) == (2, True)
    assert sorted(line.partition(" has no effect: ")[0] for line in lines[:-1]) == told


@pytest.mark.parametrize(
    ("name", "reason"),
    [("absent.yaml", "No such file or directory"), (".", "Is a directory"), ("/dev/zero", "it has more than 16 MiB")],
)
def test_a_file_that_cannot_be_read_is_told_once(tmp_path: Path, name: str, reason: str) -> None:
    path = str(tmp_path / name)
    with pytest.raises(InputError) as refusal:
        read_config_file(path)
    assert str(refusal.value) == f"the configuration file '{path}' cannot be read: {reason}"
