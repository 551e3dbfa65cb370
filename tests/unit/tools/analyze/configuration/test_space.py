"""What there is to search."""

from __future__ import annotations

import pytest

from trireme.tools.analyze.configuration.space import Space, doubled, listed_settings, load_choice, tunable
from trireme.tools.analyze.errors import InputError
from trireme.tools.analyze.options import ModelOptions, SearchOptions
from trireme.tools.analyze.trial import Load, Setting, Trial

OPTIONS = SearchOptions(max_instances=2, min_batch_size=8, max_batch_size=16, max_concurrency=4)


def test_values_are_doubled_from_the_least() -> None:
    assert doubled(1, 20) == (1, 2, 4, 8, 16)
    assert doubled(3, 12) == (3, 6, 12)
    assert doubled(5, 4) == ()


def test_instances_change_last() -> None:
    found = tunable("m", {"max_batch_size": 4}, OPTIONS, None, False).settings()
    assert found == [Setting(1, 8), Setting(1, 16), Setting(2, 8), Setting(2, 16)]


def test_a_model_without_batches_has_instances_alone() -> None:
    assert tunable("m", {}, OPTIONS, None, False).settings() == [Setting(1), Setting(2)]


def test_a_language_model_has_the_limits_of_its_engine() -> None:
    options = SearchOptions(min_sequences=4, max_sequences=8)
    settings = tunable("m", {"backend": "llm"}, options, None, False).settings()
    assert {one.max_sequences for one in settings} == {4, 8}
    assert {one.max_step_tokens for one in settings} == {512, 2048, 8192}


def test_an_ensemble_itself_has_nothing_to_change() -> None:
    assert tunable("m", {"ensemble_scheduling": {}}, OPTIONS, None, False).settings() == []


def test_listed_values_are_multiplied_out() -> None:
    given = {
        "max_batch_size": [2, 4],
        "dynamic_batching": {"preferred_batch_size": [[1], [2, 3]], "max_queue_delay_microseconds": 5},
        "instance_group": [{"count": [1, 2]}],
    }
    found = list(listed_settings(given))
    assert len(found) == 8
    assert {one.instances for one in found} == {1, 2}
    assert {one.other for one in found} == {
        '{"dynamic_batching": {"max_queue_delay_microseconds": 5, "preferred_batch_size": [1]}}',
        '{"dynamic_batching": {"max_queue_delay_microseconds": 5, "preferred_batch_size": [2, 3]}}',
    }


def test_a_list_of_lists_of_groups_is_a_choice() -> None:
    given = {"instance_group": [[{"kind": "KIND_CPU", "count": 1}], [{"kind": "KIND_GPU", "count": 2}]]}
    assert [one.other for one in listed_settings(given)] == [
        '{"instance_group": [{"count": 1, "kind": "KIND_CPU"}]}',
        '{"instance_group": [{"count": 2, "kind": "KIND_GPU"}]}',
    ]


def test_a_batch_size_that_is_no_number_is_named() -> None:
    with pytest.raises(InputError, match="max_batch_size"):
        list(listed_settings({"max_batch_size": "big"}))


def test_loads_are_listed_or_doubled() -> None:
    assert load_choice(ModelOptions("m"), OPTIONS).concurrencies == (1, 2, 4)
    assert load_choice(ModelOptions("m", concurrencies=(3, 7)), OPTIONS).concurrencies == (3, 7)
    assert load_choice(ModelOptions("m", request_rates=(5.0,)), OPTIONS).request_rates == (5.0,)
    rates = SearchOptions(by_request_rate=True, min_request_rate=10, max_request_rate=40)
    assert load_choice(ModelOptions("m"), rates).request_rates == (10.0, 20.0, 40.0)
    assert load_choice(ModelOptions("m"), SearchOptions(is_disabled=True)).concurrencies == (1,)


@pytest.mark.parametrize(("least", "sizes"), [(8, (8, 16)), (12, (12,)), (6, (8, 16)), (32, None)])
def test_a_step_of_an_ensemble_has_no_smaller_batches_than_that(least: int, sizes: tuple[int, ...] | None) -> None:
    axes = tunable("m", {"max_batch_size": 32}, OPTIONS, None, False, least).axes
    assert next((axis.values for axis in axes if axis.field == "max_batch_size"), None) == sizes


@pytest.mark.parametrize(
    ("setting", "load", "is_inside"),
    [
        (Setting(2, 16), Load("m", 4), True),
        (Setting(), Load("m", 1), True),
        (Setting(3, 16), Load("m", 4), False),
        (Setting(2, 32), Load("m", 4), False),
        (Setting(2, 16), Load("m", 8), False),
        (Setting(2, 16), Load("m", 4, batch_size=2), False),
        (Setting(2), Load("m", 4), False),
        (Setting(2, 16, other='{"a": 1}'), Load("m", 4), False),
        (Setting(2, 16), Load("m", 1, request_rate=5.0), False),
        (Setting(2, 16), Load("other", 4), False),
    ],
    ids=[
        "inside",
        "the default",
        "instances",
        "batch",
        "clients",
        "batch of requests",
        "no batch",
        "other fields",
        "a rate",
        "another model",
    ],
)
def test_what_the_search_may_measure_is_told_from_what_it_may_not(
    setting: Setting, load: Load, is_inside: bool
) -> None:
    space = Space(
        (tunable("m", {"max_batch_size": 4}, OPTIONS, None, False),), (load_choice(ModelOptions("m"), OPTIONS),)
    )
    assert space.has(Trial((("m", setting),), (load,))) == is_inside


def test_the_size_counts_the_default_as_well() -> None:
    one = tunable("m", {"max_batch_size": 4}, OPTIONS, None, False)
    assert Space((one,), (load_choice(ModelOptions("m"), OPTIONS),)).size() == 5 * 3
