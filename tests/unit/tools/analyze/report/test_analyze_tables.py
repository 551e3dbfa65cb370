"""Tables and CSV files of results that are made up."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from trireme.tools.analyze.checkpoint import Findings
from trireme.tools.analyze.options import Constraint, Goals, ModelOptions, OutputOptions
from trireme.tools.analyze.ranking import Ranking
from trireme.tools.analyze.report.caution import cautions
from trireme.tools.analyze.report.csv_files import result_tables, write_csv_files
from trireme.tools.analyze.report.page import summary_page, verdict
from trireme.tools.analyze.report.plots import make_plots
from trireme.tools.analyze.report.subject import Subject
from trireme.tools.analyze.report.tables import detail_table, inference_rows, summary_table
from trireme.tools.analyze.server.resources import Resources
from trireme.tools.analyze.trial import BatchTime, Load, Measured, Result, Setting, Trial

GPU = {"GPU-1": {"gpu_used_memory": 100.0, "gpu_utilization": 50.0, "gpu_power_usage": 70.0}}


def result(
    setting: Setting, clients: int, throughput: float, p99: float, has_gpu: bool, is_probe: bool = False
) -> Result:
    metrics = {
        "perf_throughput": throughput,
        "perf_latency_avg": p99 / 2,
        "perf_latency_p99": p99,
        "perf_server_queue": 1.0,
        "cpu_used_ram": 10.0,
    }
    if has_gpu:
        metrics |= {"gpu_used_memory": 100.0, "gpu_utilization": 50.0}
    measured = Measured("m", metrics, GPU if has_gpu else {}, (BatchTime(1, 3, 9), BatchTime(8, 2, 9)))
    return Result(Trial((("m", setting),), (Load("m", clients),)), (measured,), is_probe=is_probe)


def subject(*results: Result, goals: Goals | None = None, has_gpu: bool = False) -> Subject:
    findings = Findings(
        configs={"m": {"name": "m", "max_batch_size": 4, "instance_group": [{"count": 1, "kind": "KIND_CPU"}]}},
        idle=Resources({}, GPU if has_gpu else {}),
    )
    for one in results:
        findings.variant_name("m", one.trial.settings[0][1])
        findings.add(one)
    return Subject(("m",), ("m",), findings, Ranking([ModelOptions("m", goals or Goals())]), 2)


def usual(has_gpu: bool = False, goals: Goals | None = None) -> Subject:
    return subject(
        result(Setting(1, 8), 8, 50, 9, has_gpu),
        result(Setting(2, 8), 8, 90, 12, has_gpu),
        result(Setting(2, 8), 1, 20, 2, has_gpu, is_probe=True),
        result(Setting(3, 8), 8, 80, 30, has_gpu),
        result(Setting(), 2, 10, 5, has_gpu),
        has_gpu=has_gpu,
        goals=goals,
    )


def test_the_best_come_first_and_the_default_is_always_there() -> None:
    table = summary_table(usual())
    assert [row[0] for row in table.rows] == ["m_config_1", "m_config_2", "m_config_default"]
    assert table.rows[0][:7] == ["m_config_1", "8", "Enabled", "2:CPU", "8", "12.000", "90.000"]
    assert table.rows[2][2] == "Disabled"
    assert "Max CPU Memory Usage (MB)" in table.headers


def test_what_was_only_probed_is_shown_but_is_not_the_best() -> None:
    about = subject(
        result(Setting(1, 8), 8, 50, 9, False),
        result(Setting(2, 8), 8, 90, 12, False, is_probe=True),
        result(Setting(3, 8), 8, 40, 12, False, is_probe=True),
        result(Setting(), 2, 45, 5, False),
    )
    names = [about.name_of(one.settings) for one in about.ranked]
    assert names == ["m_config_0", "m_config_1", "m_config_default", "m_config_2"]
    assert about.best is not None
    assert not about.best.best.is_probe


UNDER_20_MS = Goals(constraints=(Constraint("perf_latency_p99", most=20.0),))


def test_a_variant_stands_for_the_probe_that_keeps_the_constraint_where_nothing_longer_does() -> None:
    about = subject(
        result(Setting(1, 8), 8, 90, 12, False),
        result(Setting(), 8, 30, 45, False),
        result(Setting(), 2, 45, 8, False, is_probe=True),
        goals=UNDER_20_MS,
    )
    own = summary_table(about).rows[1]
    assert (own[0], own[4:7], own[-1]) == ("m_config_default", ["2", "8.000", "45.000"], "Yes")
    assert verdict(about).endswith("That is 2.00 times what the model's own configuration does.")


def test_a_probe_is_the_best_only_where_nothing_longer_keeps_the_constraint() -> None:
    probe = result(Setting(), 2, 95, 8, False, is_probe=True)
    slow = result(Setting(2, 8), 8, 30, 45, False)
    about = subject(result(Setting(1, 8), 8, 90, 12, False), slow, probe, goals=UNDER_20_MS)
    assert [about.name_of(one.settings) for one in about.ranked] == ["m_config_0", "m_config_default", "m_config_1"]
    about = subject(slow, probe, goals=UNDER_20_MS)
    assert [about.name_of(one.settings) for one in about.ranked] == ["m_config_default", "m_config_0"]
    assert "It was only looked at for a short time" in verdict(about)


def test_accelerators_have_their_columns() -> None:
    headers = summary_table(usual(has_gpu=True)).headers
    assert headers[-3:] == ["Max GPU Memory Usage (MB)", "Average GPU Utilization (%)", "Satisfies Constraints"]


def test_memory_of_a_whole_machine_says_so() -> None:
    about = usual()
    for one in about.findings.results:
        for measured in one.measured:
            measured.metrics["machine_used_ram"] = 10.0  # type: ignore[index]
    assert "Max CPU Memory Usage of the Whole Machine (MB)" in summary_table(about).headers
    assert "CPU Memory Usage of the Whole Machine (MB)" in detail_table(about, about.ranked[0]).headers
    assert next(plot for plot in make_plots(about) if plot.name == "memory").note.startswith("CPU memory is that of")


def test_a_variants_own_table_has_its_probes_too() -> None:
    about = usual()
    assert [row[0] for row in detail_table(about, about.ranked[0]).rows] == ["1", "8"]


def test_csv_files_have_the_originals_names_and_columns(tmp_path: Path) -> None:
    write_csv_files(result_tables([usual(has_gpu=True)], OutputOptions()), str(tmp_path))
    with (tmp_path / "results/metrics-model-inference.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == [
        "Model", "Batch", "Concurrency", "Model Config Path", "Instance Group", "Max Batch Size",
        "Satisfies Constraints", "Throughput (infer/sec)", "p99 Latency (ms)",
    ]  # fmt: skip
    assert rows[1] == ["m", "1", "1", "m_config_1", "2:CPU", "8", "Yes", "20.000", "2.000"]
    gpu = (tmp_path / "results/metrics-model-gpu.csv").read_text().splitlines()
    assert gpu[0].startswith("Model,GPU UUID,Batch,Concurrency,Model Config Path,Instance Group,Satisfies Constraints,")
    assert gpu[0].endswith("GPU Memory Usage (MB),GPU Utilization (%),GPU Power Usage (W)")
    assert gpu[1].split(",")[1] == "GPU-1"
    assert (tmp_path / "results/metrics-server-only.csv").read_text().splitlines()[1] == (
        "triton-server,GPU-1,100.0,50.000,70.000"
    )


def test_the_verdict_says_what_was_gained() -> None:
    assert verdict(usual()) == (
        "m_config_1 is the best of 4 configurations: 90.000 inferences per second with a p99 latency of 12.000 ms, "
        "from 8 clients. That is 9.00 times what the model's own configuration does."
    )


def test_the_verdict_says_where_nothing_is_good_enough() -> None:
    about = usual(goals=Goals(constraints=(Constraint("perf_latency_p99", most=1.0),)))
    assert verdict(about).startswith("No configuration meets the constraints; m_config_default comes nearest")


def test_every_plot_has_marks_and_names_are_escaped() -> None:
    about = usual()
    plots = make_plots(about)
    assert [plot.name for plot in plots] == ["throughput_v_latency", "latency_breakdown", "batch_sizes", "memory"]
    assert all('class="mark"' in plot.svg for plot in plots)
    assert "m_config_1, 1 client: 20.0/s at p99 2.00 ms" in plots[0].svg
    page = summary_page(about, plots, [("m/<config>", "a < b")], "")
    assert "a &lt; b" in page
    assert "<config>" not in page


def test_a_gain_that_measurements_of_the_same_differ_by_may_be_chance() -> None:
    repeated = replace(result(Setting(1, 8), 8, 50, 9, False), repeats=(40.0,))
    (told,) = cautions(subject(repeated, result(Setting(), 8, 41, 9, False)))
    assert told.startswith(
        "Caution: m_config_0 is 1.22 times as good as m_config_default, and measurements of the same "
    )
    assert "up to 1.25: the difference may be chance" in told
    assert cautions(subject(repeated, result(Setting(), 8, 30, 9, False))) == []
    assert cautions(usual()) == []


def test_where_nothing_is_good_enough_nobody_is_said_to_be_better_by_chance() -> None:
    goals = Goals(constraints=(Constraint("perf_latency_p99", most=1.0),))
    alike = result(Setting(1, 8), 8, 50, 9, False), result(Setting(), 8, 49, 9, False)
    assert cautions(subject(*alike))
    assert cautions(subject(*alike, goals=goals)) == []


def test_a_bound_of_what_was_not_measured_is_not_known_to_be_kept() -> None:
    best = result(Setting(1, 8), 8, 50, 9, False)
    for tag, is_met in (("time_to_first_token_p99", False), ("gpu_used_memory", True)):
        about = subject(best, goals=Goals(constraints=(Constraint(tag, most=1.0),)))
        assert about.is_met is is_met
        assert cautions(about) == [
            f"Caution: {tag} of m was not measured, and nothing is known of whether it keeps its bound."
        ]
    known = subject(best, goals=Goals(constraints=(Constraint("perf_latency_p99", most=10.0),)))
    assert known.is_met
    assert cautions(known) == []
    assert not subject(best, goals=Goals(constraints=(Constraint("perf_latency_p99", most=1.0),))).is_met


def test_numbers_of_the_best_that_did_not_settle_are_told() -> None:
    best = result(Setting(1, 8), 8, 50, 9, False)
    unsettled = replace(best, measured=(replace(best.measured[0], is_stable=False),))
    (told,) = cautions(subject(unsettled))
    assert told.startswith(
        "Caution: the numbers of m_config_0 did not settle: its windows differ by more than they may."
    )
    assert cautions(subject(replace(unsettled, is_probe=True))) == []
    assert cautions(subject(result(Setting(2, 8), 8, 90, 9, False), unsettled)) == []


def test_names_in_tables_break_between_their_words() -> None:
    assert "<td>m_<wbr>config_<wbr>default</td>" in summary_page(usual(), [], [], "")


def test_a_machine_that_became_slower_and_a_prediction_that_was_far_off_are_told() -> None:
    best = replace(result(Setting(1, 8), 8, 50, 9, False), repeats=(20.0,))
    about = subject(best, result(Setting(), 8, 10, 9, False))
    about = replace(about, predictions=[(best.trial, {"perf_throughput": 120.0, "perf_latency_p99": 9.0})])
    changed, far = cautions(about)
    assert "the same load of m_config_0 gave 20.0 inferences per second at one moment and 50.0 at another" in changed
    assert "50.0 inferences per second were measured where the queueing model expected 120.0" in far
    assert "expected 120.0" in summary_page(about, [], [], "")


def ensemble() -> Subject:
    """Two steps that are tuned, under the load of the ensemble."""
    configs = {
        "e": {"name": "e", "max_batch_size": 1, "ensemble_scheduling": {}},
        "a": {"name": "a", "max_batch_size": 1},
        "b": {"name": "b", "max_batch_size": 2},
    }
    settings = (("a", Setting(2, 8)), ("b", Setting(3, 4)))
    inner = (("a", (BatchTime(8, 2, 9),)), ("b", (BatchTime(4, 5, 9),)))
    measured = Measured("e", {"perf_throughput": 5.0, "perf_latency_p99": 2.0}, inner_batches=inner)
    findings = Findings(configs=configs)
    findings.add(Result(Trial(settings, (Load("e", 2),)), (measured,)))
    return Subject(("e",), ("a", "b"), findings, Ranking([ModelOptions("e")]), 2)


def test_rows_of_an_ensemble_have_the_values_of_its_steps() -> None:
    (row,) = inference_rows(ensemble(), ("model_name", "model_config_path", "instance_group", "max_batch_size"))
    assert row == ["e", "a_config_0,b_config_0", "2:CPU,3:CPU", "8,4"]


def test_the_steps_of_an_ensemble_have_plots_of_their_batches() -> None:
    plots = {plot.name: plot for plot in make_plots(ensemble())}
    assert plots["batch_sizes_1"].title == "Batch sizes of a"
    assert "8, a_config_0,b_config_0: 100" in plots["batch_sizes_1"].svg
    assert "4, a_config_0,b_config_0: 100" in plots["batch_sizes_2"].svg
    assert "batch_sizes" not in plots, "an ensemble has no batches of its own"


def test_the_verdict_and_the_table_of_a_language_model_speak_of_tokens() -> None:
    metrics = {"perf_throughput": 4.0, "perf_latency_p99": 90.0, "output_token_throughput": 64.0}
    measured = Measured("m", {**metrics, "time_to_first_token_p99": 12.0})
    about = subject(Result(Trial((("m", Setting()),), (Load("m", 1),)), (measured,)))
    assert verdict(about) == (
        "m_config_default is the best of one configuration: 64.000 tokens per second (4.000 answers) with a p99 time "
        "to first token of 12.000 ms, from 1 client."
    )
    (_, table), *_ = result_tables([about], OutputOptions())
    assert table.headers[-3:] == ["Output Token Throughput (tokens/sec)", "Throughput (infer/sec)", "p99 Latency (ms)"]
    assert table.rows[0][-3:] == ["64.000", "4.000", "90.000"]
    chosen = OutputOptions(inference_fields=("model_name",))
    assert result_tables([about], chosen)[0][1].headers == ["Model"]
