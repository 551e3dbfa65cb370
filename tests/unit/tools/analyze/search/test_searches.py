"""Searches on servers whose best configuration is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from played_server import AT_LENGTH_S, PlayedServer, ranking

from trireme.tools.analyze.configuration.space import Axis, LoadChoice, Space, Tunable, doubled
from trireme.tools.analyze.options import Constraint, Goals, ModelOptions, SearchOptions
from trireme.tools.analyze.ranking import Ranking
from trireme.tools.analyze.search.brute import brute, sweep
from trireme.tools.analyze.search.fit.search import _Search, can_fit, fit
from trireme.tools.analyze.search.parzen import parzen, trial_count
from trireme.tools.analyze.search.port import Rank
from trireme.tools.analyze.search.quick import quick
from trireme.tools.analyze.trial import Measured, Result, Trial

SPACE = Space(
    (
        Tunable(
            "m",
            {"max_batch_size": 4},
            (Axis("instances", (1, 2, 3, 4, 5)), Axis("max_batch_size", doubled(1, 64))),
        ),
    ),
    (LoadChoice("m", (1,), doubled(1, 256)),),
)


def best(server: PlayedServer, is_allowed: Callable[[Result], bool] = lambda result: True) -> float:
    """The most throughput of all trials, without noise."""
    found = [server.result(trial) for settings in SPACE.combinations() for trial in SPACE.trials(settings, 1)]
    return max(one.measured[0].metrics["perf_throughput"] for one in found if is_allowed(one))


def waiting(size: int, busy: int) -> float:
    """Instances do not disturb each other."""
    return 0.010 + 0.0001 * size


def computing(size: int, busy: int) -> float:
    """Two cores, and batches that gain a little."""
    return (0.002 + 0.001 * size) * max(1.0, busy / 2)


def thrashing(size: int, busy: int) -> float:
    """Every further instance costs all of them."""
    return (0.004 + 0.0002 * size) * busy * (1 + 0.3 * (busy - 1))


SERVICES = {"waiting": waiting, "computing": computing, "thrashing": thrashing}


def reached(server: PlayedServer, rank: Ranking) -> float:
    """Without noise, the throughput of the best that was measured."""
    results = [server.result(trial) for trial in server.trials]
    return max(one.measured[0].metrics["perf_throughput"] for one in results if rank.is_satisfying(one))


@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize("limit_ms", [None, 60.0])
def test_the_fitted_model_finds_the_best_with_a_tenth_of_the_measurements(name: str, limit_ms: float | None) -> None:
    server = PlayedServer(SERVICES[name])
    rank = ranking(*([] if limit_ms is None else [Constraint("perf_latency_p99", most=limit_ms)]))
    fit(SPACE, server.measure, rank, lambda text: None)
    assert reached(server, rank) >= 0.95 * best(server, rank.is_satisfying)
    assert len(server.trials) <= SPACE.size() / 10


@pytest.mark.parametrize("name", SERVICES)
@pytest.mark.parametrize("noise", [0.02, 0.3])
def test_the_fitted_model_needs_a_tenth_of_the_time_however_noisy_the_machine_is(name: str, noise: float) -> None:
    server, rank = PlayedServer(SERVICES[name], noise), ranking(Constraint("perf_latency_p99", most=60.0))
    fit(SPACE, server.measure, rank, lambda text: None, lambda: server.now_s)
    assert server.now_s <= SPACE.size() * AT_LENGTH_S / 10


def test_promises_are_followed_for_a_share_of_the_time_that_everything_would_take() -> None:
    counts = []
    for passing_s in (0.0, 100.0):
        server, told, now_s = PlayedServer(computing, 0.5), list[str](), itertools.count(0.0, passing_s)
        fit(SPACE, server.measure, ranking(Constraint("perf_latency_p99", most=30.0)), told.append, now_s.__next__)
        assert server.measured_at_length
        counts.append(len(told))
    assert counts[0] > counts[1] == 3


def test_a_probe_that_shows_more_than_the_model_believes_is_measured_at_length() -> None:
    server = PlayedServer(waiting)
    search = _Search(SPACE, server.measure, ranking(), 1, lambda text: None)
    search._probe()
    search._check(search._promising() or next(iter(search._results)))
    lucky = next(trial for trial in search._results if trial not in search._is_checked)
    search._results[lucky] = server.result(lucky, 1000.0, is_probe=True)
    search._check_best_probes()
    assert server.measured_at_length[1:] == [lucky]


@pytest.mark.parametrize("constraints", [(), (Constraint("perf_latency_p99", most=60.0),)], ids=["free", "bounded"])
def test_what_the_machine_did_for_a_while_does_not_cost_the_best(constraints: tuple[Constraint, ...]) -> None:
    server, rank = PlayedServer(waiting), ranking(*constraints)
    at_length: list[Result] = []

    def measure(trial: Trial, is_probe: bool = False, again: Rank | None = None) -> Result | None:
        result = server.measure(trial, is_probe, again)
        if result is None or is_probe:
            return result
        if not at_length:
            metrics = {**result.measured[0].metrics, "perf_latency_p99": 500.0}
            metrics["perf_throughput"] /= 5
            result = replace(result, measured=(replace(result.measured[0], metrics=metrics),))
        at_length.append(result)
        return result

    fit(SPACE, measure, rank, lambda text: None)
    promised = at_length[0].trial
    assert [result.trial for result in at_length].count(promised) == 2
    assert max(at_length, key=rank.key).trial == promised


def test_an_own_configuration_that_is_far_from_the_best_is_only_probed() -> None:
    server = PlayedServer(waiting)
    fit(SPACE, server.measure, ranking(), lambda text: None)
    own = [trial for trial in server.trials if trial.settings[0][1].is_default]
    assert own
    assert not set(own) & set(server.measured_at_length)


@pytest.mark.parametrize("name", SERVICES)
def test_only_what_a_probe_confirms_is_measured_at_length(name: str) -> None:
    server, rank = PlayedServer(SERVICES[name]), ranking(Constraint("perf_latency_p99", most=60.0))
    fit(SPACE, server.measure, rank, lambda text: None)
    probed = set(server.probed)
    own = [trial for trial in server.trials if trial.settings[0][1].is_default]
    at_length = [trial for trial in server.measured_at_length if trial not in own]
    assert set(at_length) <= probed
    assert len(at_length) <= 4


def test_the_best_probe_is_measured_at_length_where_nothing_else_was() -> None:
    server = PlayedServer(waiting)
    search = _Search(SPACE, server.measure, ranking(), 1, lambda text: None)
    search._probe()
    unloadable = next(trial for trial in search._candidates.all() if trial not in search._results)
    search._results[unloadable] = None
    search._is_checked.add(unloadable)
    search._check_best_probes()
    assert len(server.measured_at_length) == 1
    search._check_best_probes()
    assert len(server.measured_at_length) == 1


def test_the_fitted_model_tells_of_every_load_of_what_was_measured() -> None:
    server = PlayedServer(waiting, noise=0.0)
    predictions = fit(SPACE, server.measure, ranking(), lambda text: None)
    measured = {trial.settings for trial in server.trials if not trial.settings[0][1].is_default}
    assert {one.trial.settings for one in predictions} == measured
    assert len(predictions) > 5 * len(measured)
    errors = [
        abs(one.metrics["perf_throughput"] / server.result(one.trial).measured[0].metrics["perf_throughput"] - 1)
        for one in predictions
    ]
    assert sorted(errors)[len(errors) // 2] < 0.1


def test_the_fitted_model_ends_where_nothing_can_be_measured() -> None:
    assert fit(SPACE, lambda trial, is_probe=False, again=None: None, ranking(), lambda text: None) == []


def test_a_model_without_batches_is_fitted_by_its_instances() -> None:
    alone = Space((Tunable("m", {}, (Axis("instances", (1, 2, 4)),)),), SPACE.choices)
    server, rank = PlayedServer(waiting), ranking()
    fit(alone, server.measure, rank, lambda text: None)
    assert max(trial.settings[0][1].instances or 1 for trial in server.trials) == 4
    assert reached(server, rank) == pytest.approx(4 / 0.0106, rel=0.1)


def test_only_a_single_model_is_fitted() -> None:
    assert can_fit(SPACE)
    assert not can_fit(type(SPACE)(SPACE.tunables * 2, SPACE.choices))


@pytest.mark.parametrize("name", SERVICES)
def test_hill_climbing_comes_near_the_best(name: str) -> None:
    server, rank = PlayedServer(SERVICES[name]), ranking()
    quick(SPACE, server.measure, rank, 3)
    assert reached(server, rank) >= 0.8 * best(server)
    assert len(set(server.trials)) < SPACE.size() / 2


def test_hill_climbing_widens_steps_that_are_equally_narrow_together() -> None:
    steps = tuple(Tunable(name, {}, (Axis("instances", (1, 2, 3)),)) for name in ("first", "second"))
    rank, measured = Ranking([ModelOptions("chain")]), list[Result]()

    def measure(trial: Trial, is_probe: bool = False, again: Rank | None = None) -> Result:
        narrowest = min(setting.instances or 1 for _, setting in trial.settings)
        measured.append(Result(trial, (Measured("chain", {"perf_throughput": 100.0 * narrowest}),)))
        return measured[-1]

    quick(Space(steps, (LoadChoice("chain", (1,), doubled(1, 8)),)), measure, rank, 1)
    best = rank.by_variant(measured)[0]
    assert [setting.instances for _, setting in best.settings] == [3, 3]


@pytest.mark.parametrize("name", SERVICES)
def test_draws_by_density_come_near_the_best(name: str) -> None:
    server, rank = PlayedServer(SERVICES[name]), ranking()
    parzen(SPACE, server.measure, rank, SearchOptions(), 3)
    assert reached(server, rank) >= 0.8 * best(server)


def test_brute_measures_all_where_it_may_not_end_early() -> None:
    server = PlayedServer(waiting)
    brute(SPACE, server.measure, ranking(), exits_early=False)
    assert len(set(server.trials)) == SPACE.size()


def test_a_series_ends_where_nothing_is_gained() -> None:
    server = PlayedServer(lambda size, busy: 0.010, noise=0.0)
    found = sweep(SPACE, (("m", SPACE.tunables[0].settings()[0]),), 1, server.measure, ranking())
    assert 5 <= len(found) < 9


def test_a_series_ends_where_a_latency_is_passed() -> None:
    server = PlayedServer(lambda size, busy: 0.010, noise=0.0)
    rank = ranking(Constraint("perf_latency_p99", most=15.0))
    settings = (("m", SPACE.tunables[0].settings()[0]),)
    assert len(sweep(SPACE, settings, 1, server.measure, rank)) == 3


@pytest.mark.parametrize(("bounded", "count"), [("slow", 3), ("fast", 4)])
def test_a_series_of_several_models_ends_by_the_bound_of_each(bounded: str, count: int) -> None:
    def measure(trial: Trial, is_probe: bool = False, again: Rank | None = None) -> Result:
        clients = trial.loads[0].concurrency
        latencies = {"slow": 100.0 * clients, "fast": 1.0}
        metrics = {
            model: {"perf_throughput": float(clients), "perf_latency_p99": latencies[model]} for model in latencies
        }
        return Result(trial, tuple(Measured(model, one) for model, one in metrics.items()))

    space = Space((), tuple(LoadChoice(model, (1,), doubled(1, 8)) for model in ("slow", "fast")))
    goals = Goals(constraints=(Constraint("perf_latency_p99", most=150.0),))
    models = [ModelOptions(model, goals if model == bounded else Goals()) for model in ("slow", "fast")]
    assert len(sweep(space, (), 1, measure, Ranking(models))) == count


def test_draws_are_bounded_by_the_share_of_the_space_and_by_numbers() -> None:
    options = SearchOptions(min_trials=20, max_trials=200)
    assert trial_count(1000, options) == (50, 100)
    assert trial_count(100, options) == (20, 20)
    assert trial_count(10, options) == (10, 10)
    assert trial_count(10_000, options) == (200, 200)
