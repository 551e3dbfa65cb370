"""Metrics declared by users' models: sharing, handles, and what each kind allows."""

from __future__ import annotations

import pytest

from trireme.core.errors import ErrorKind, ServingError
from trireme.observe.custom_metrics import CustomMetrics
from trireme.observe.prometheus import PageWriter

DELETED = (
    "Invalid metric operation as the corresponding 'MetricFamily' has been deleted. The 'MetricFamily' object should "
    "be deleted AFTER its corresponding 'Metric' objects have been deleted."
)


def page(metrics: CustomMetrics) -> list[str]:
    writer = PageWriter()
    metrics.write(writer)
    return writer.page().decode().splitlines()


def test_family_shows_with_its_first_series_and_goes_with_its_last_handle() -> None:
    metrics = CustomMetrics()
    family = metrics.create_family("m_0", "tokens_total", 'all\n"of" them\\', "counter")
    assert page(metrics) == []
    metric = metrics.create_metric(family, {"z": "1", "a": "2"}, None)
    metrics.update(metric, "increment", 2)
    metrics.update(metric, "increment", 0.5)
    assert page(metrics) == [
        '# HELP tokens_total all\\n"of" them\\\\',
        "# TYPE tokens_total counter",
        'tokens_total{a="2",z="1"} 2.5',
    ]
    assert metrics.value(metric) == 2.5
    metrics.delete_metric(metric)
    metrics.delete_metric(metric)
    assert page(metrics) == []
    metrics.delete_family(family)
    metrics.create_family("m_0", "tokens_total", "", "gauge")


def test_equal_name_and_kind_is_one_family_and_equal_labels_one_series() -> None:
    metrics = CustomMetrics()
    one = metrics.create_family("m_0", "shared", "first", "gauge")
    two = metrics.create_family("m_1", "shared", "second", "gauge")
    first = metrics.create_metric(one, {"k": "v"}, None)
    second = metrics.create_metric(two, {"k": "v"}, None)
    metrics.update(first, "set", 4)
    metrics.update(second, "increment", -1)
    assert metrics.value(first) == metrics.value(second) == 3
    metrics.release("m_0")
    assert page(metrics) == ["# HELP shared first", "# TYPE shared gauge", 'shared{k="v"} 3']
    metrics.release("m_1")
    assert page(metrics) == []


def test_histogram_shows_cumulative_buckets() -> None:
    metrics = CustomMetrics()
    family = metrics.create_family("m_0", "size", "h", "histogram")
    metric = metrics.create_metric(family, {}, [0.1, 1, 10_000_000])
    for value in (0.05, 1.0, 3.5):
        metrics.update(metric, "observe", value)
    assert page(metrics)[2:] == [
        "size_count 3",
        "size_sum 4.55",
        'size_bucket{le="0.1"} 1',
        'size_bucket{le="1"} 2',
        'size_bucket{le="10000000"} 3',
        'size_bucket{le="+Inf"} 3',
    ]


@pytest.mark.parametrize(
    ("kind", "operation", "message"),
    [
        ("counter", "set", "TRITONSERVER_METRIC_KIND_COUNTER does not support Set"),
        ("counter", "observe", "TRITONSERVER_METRIC_KIND_COUNTER does not support Observe"),
        ("gauge", "observe", "TRITONSERVER_METRIC_KIND_GAUGE does not support Observe"),
        ("histogram", "increment", "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Increment"),
        ("histogram", "set", "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Set"),
        ("histogram", "value", "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value"),
    ],
)
def test_operation_that_the_kind_does_not_have_is_refused(kind: str, operation: str, message: str) -> None:
    metrics = CustomMetrics()
    family = metrics.create_family("m_0", "x", "", kind)
    metric = metrics.create_metric(family, {}, [1.0] if kind == "histogram" else None)
    with pytest.raises(ServingError) as refused:
        if operation == "value":
            metrics.value(metric)
        else:
            metrics.update(metric, operation, 1)
    assert (refused.value.message, refused.value.kind) == (message, ErrorKind.UNSUPPORTED)


@pytest.mark.parametrize("value", [-1, float("nan")])
def test_counter_never_goes_back(value: float) -> None:
    metrics = CustomMetrics()
    metric = metrics.create_metric(metrics.create_family("m_0", "x", "", "counter"), {}, None)
    with pytest.raises(ServingError, match="can only be incremented monotonically by non-negative values"):
        metrics.update(metric, "increment", value)
    assert metrics.value(metric) == 0


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("has-dash", "counter", "Invalid metric name"),
        ("", "counter", "Invalid metric name"),
        ("taken", "counter", "Family name already exists with different type"),
        ("nv_inference_count", "counter", "kept for the server's own metrics"),
        ("fine", "summary", "is not one of counter, gauge, histogram"),
    ],
)
def test_family_that_cannot_be_is_refused(name: str, kind: str, message: str) -> None:
    metrics = CustomMetrics()
    metrics.create_family("m_0", "taken", "", "gauge")
    with pytest.raises(ServingError, match=message):
        metrics.create_family("m_0", name, "", kind)


@pytest.mark.parametrize(
    ("kind", "labels", "buckets", "message"),
    [
        ("histogram", {}, None, "Failed to create metric. Missing required buckets."),
        ("counter", {}, [1.0], "Failed to create metric. Unexpected buckets found."),
        ("histogram", {}, [2.0, 1.0], "Bucket Boundaries must be strictly sorted"),
        ("histogram", {}, [1.0, 1.0], "Bucket Boundaries must be strictly sorted"),
        ("counter", {"a-b": "x"}, None, "Invalid label name"),
        ("counter", {"__a": "x"}, None, "Invalid label name"),
    ],
)
def test_metric_that_cannot_be_is_refused(
    kind: str, labels: dict[str, str], buckets: list[float] | None, message: str
) -> None:
    metrics = CustomMetrics()
    family = metrics.create_family("m_0", "x", "", kind)
    with pytest.raises(ServingError) as refused:
        metrics.create_metric(family, labels, buckets)
    assert refused.value.message == message
    assert page(metrics) == []


def test_metric_is_dead_once_its_family_is_deleted_though_others_share_it() -> None:
    metrics = CustomMetrics()
    family = metrics.create_family("m_0", "x", "", "counter")
    other = metrics.create_family("m_1", "x", "", "counter")
    metric = metrics.create_metric(family, {}, None)
    metrics.delete_family(family)
    for operation in (lambda: metrics.update(metric, "increment", 1), lambda: metrics.value(metric)):
        with pytest.raises(ServingError) as refused:
            operation()
        assert refused.value.message == DELETED
    with pytest.raises(ServingError):
        metrics.create_metric(family, {}, None)
    metrics.delete_metric(metric)
    metrics.update(metrics.create_metric(other, {}, None), "increment", 1)
    assert page(metrics)[-1] == "x 1"


def test_many_observations_can_come_at_once() -> None:
    metrics = CustomMetrics()
    family = metrics.create_family("owner", "gaps", "of tokens", "histogram")
    series = metrics.create_metric(family, {}, [1.0, 2.0])
    metrics.update(series, "observe", 1.5)
    metrics.update(series, "observe_counts", ([2, 0, 1], 9.0))
    assert {line for line in page(metrics) if not line.startswith("#")} == {
        'gaps_bucket{le="1"} 2',
        'gaps_bucket{le="2"} 3',
        'gaps_bucket{le="+Inf"} 4',
        "gaps_sum 10.5",
        "gaps_count 4",
    }
    with pytest.raises(ServingError, match="2 counts for a histogram of 3 buckets"):
        metrics.update(series, "observe_counts", ([1, 1], 2.0))
