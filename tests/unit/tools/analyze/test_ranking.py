"""Constraints, weighted objectives, and the order of variants."""

from __future__ import annotations

from trireme.tools.analyze.options import Constraint, Goals, ModelOptions
from trireme.tools.analyze.ranking import Ranking
from trireme.tools.analyze.trial import Load, Measured, Result, Setting, Trial


def result(instances: int, throughput: float, p99: float, clients: int = 1) -> Result:
    trial = Trial((("m", Setting(instances)),), (Load("m", clients),))
    return Result(trial, (Measured("m", {"perf_throughput": throughput, "perf_latency_p99": p99}),))


def ranking(*constraints: Constraint, **objectives: float) -> Ranking:
    return Ranking([ModelOptions("m", Goals(objectives or {"perf_throughput": 1.0}, constraints))])


def order(rank: Ranking, *results: Result) -> list[int | None]:
    return [one.settings[0][1].instances for one in rank.by_variant(results)]


def test_the_most_throughput_comes_first() -> None:
    assert order(ranking(), result(1, 10, 5), result(2, 30, 50), result(3, 20, 1)) == [2, 3, 1]


def test_what_breaks_a_constraint_comes_behind_all_that_keeps_it() -> None:
    rank = ranking(Constraint("perf_latency_p99", most=20))
    assert order(rank, result(1, 10, 5), result(2, 30, 50), result(3, 20, 1)) == [3, 1, 2]


def test_nearest_to_the_bounds_comes_first_where_nothing_keeps_them() -> None:
    rank = ranking(Constraint("perf_latency_p99", most=1))
    ranked = rank.by_variant([result(1, 10, 5), result(2, 30, 50), result(3, 20, 2)])
    assert [one.settings[0][1].instances for one in ranked] == [3, 1, 2]
    assert not any(one.is_satisfying for one in ranked)


def test_a_lower_bound_is_a_constraint_too() -> None:
    rank = ranking(Constraint("perf_throughput", least=15), perf_latency_p99=1.0)
    assert order(rank, result(1, 10, 1), result(2, 30, 50), result(3, 20, 2)) == [3, 2, 1]


def test_weights_decide_between_objectives() -> None:
    fast, wide = result(1, 100, 10), result(2, 200, 40)
    assert order(ranking(perf_throughput=3.0, perf_latency_p99=1.0), fast, wide) == [2, 1]
    assert order(ranking(perf_throughput=1.0, perf_latency_p99=3.0), fast, wide) == [1, 2]


def test_a_variant_stands_for_its_best_load_and_lists_all() -> None:
    (one,) = ranking().by_variant([result(1, 10, 1, 8), result(1, 30, 9, 4), result(1, 20, 5, 2)])
    assert one.best.trial.loads[0].concurrency == 4
    assert [entry.trial.loads[0].concurrency for entry in one.results] == [2, 4, 8]


def test_a_weighting_counts_one_model_for_more_than_another() -> None:
    rank = Ranking([ModelOptions("a", weighting=3), ModelOptions("b")])

    def both(a: float, b: float) -> Result:
        trial = Trial((("a", Setting(int(a))), ("b", Setting(int(b)))), (Load("a"), Load("b")))
        return Result(trial, (Measured("a", {"perf_throughput": a}), Measured("b", {"perf_throughput": b})))

    assert rank.by_variant([both(20, 10), both(10, 30)])[0].settings[0][1].instances == 20


def test_a_metric_that_was_not_measured_breaks_no_constraint() -> None:
    rank = ranking(Constraint("gpu_used_memory", most=1))
    assert rank.is_satisfying(result(1, 10, 5))
