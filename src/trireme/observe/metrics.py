"""The metrics of the server: which families there are, and the registry that puts them on one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from trireme.core.clock import Clock, monotonic_ns
from trireme.observe.cache_stats import CacheStats
from trireme.observe.custom_metrics import CustomMetrics
from trireme.observe.failure_reasons import FAILURE_REASONS
from trireme.observe.host_metrics import HostMetrics
from trireme.observe.latency import DEFAULT_BOUNDS_NS, LatencyHistogram, LatencySummaries, LatencySummary
from trireme.observe.metrics_options import MetricsOptions
from trireme.observe.prometheus import PageWriter, label_text
from trireme.observe.recent.requests import RecentRequests
from trireme.observe.stats import ModelStats
from trireme.observe.worker_health import WorkerHealth

if TYPE_CHECKING:
    from trireme.observe.device_metrics import DeviceMetrics
    from trireme.observe.on_demand import OnDemandMetrics

FIRST_RESPONSE = "nv_inference_first_response_histogram_ms"
DEFAULT_FIRST_RESPONSE_BUCKETS_MS = (100.0, 500.0, 2000.0, 5000.0)


class _Counter(NamedTuple):
    name: str
    help_text: str
    read: Callable[[ModelStats], int]


class _Summary(NamedTuple):
    name: str
    help_text: str
    read: Callable[[LatencySummaries], LatencySummary]
    is_for_cached: bool | None = None  # None: for every model


_SUCCESS = _Counter("nv_inference_request_success", "Requests answered without an error", attrgetter("success_count"))
_FAILURE = ("nv_inference_request_failure", "Requests that ended with an error, by reason")
_COUNTS = (
    _Counter("nv_inference_count", "Inferences performed, a batch of n counting n", attrgetter("inference_count")),
    _Counter("nv_inference_exec_count", "Executions of the model, whatever their size", attrgetter("execution_count")),
)
_UNCOUNTED = _Counter(
    "trireme_statistics_failures_total",
    "Failures to count or trace a request, which was answered all the same",
    attrgetter("counting_failures.count"),
)
_LATENCIES = (
    _Counter("nv_inference_request_duration_us", "Time from arrival to answer", attrgetter("request_ns")),
    _Counter("nv_inference_queue_duration_us", "Time spent waiting for an instance", attrgetter("queue_ns")),
    _Counter("nv_inference_compute_input_duration_us", "Time spent preparing inputs", attrgetter("compute_input_ns")),
    _Counter(
        "nv_inference_compute_infer_duration_us", "Time spent executing the model", attrgetter("compute_infer_ns")
    ),
    _Counter(
        "nv_inference_compute_output_duration_us", "Time spent extracting outputs", attrgetter("compute_output_ns")
    ),
)
_CACHE_COUNTS = (
    _Counter("nv_cache_num_hits_per_model", "Requests answered from the cache", attrgetter("cache_hit_count")),
    _Counter("nv_cache_num_misses_per_model", "Requests the cache did not know", attrgetter("cache_miss_count")),
)
_CACHE_LATENCIES = (
    _Counter("nv_cache_hit_duration_per_model", "Time of cache hits, in microseconds", attrgetter("cache_hit_ns")),
    _Counter("nv_cache_miss_duration_per_model", "Time of cache misses, in microseconds", attrgetter("cache_miss_ns")),
)
_SERVER_CACHE: tuple[tuple[str, str, Callable[[CacheStats], float]], ...] = (
    ("nv_cache_util", "How full the response cache is, from 0 to 1", lambda stats: stats.utilization),
    ("nv_cache_num_entries", "Responses in the cache", attrgetter("entry_count")),
    ("nv_cache_num_hits", "Requests the cache could answer", attrgetter("hit_count")),
    ("nv_cache_num_misses", "Requests the cache did not know", lambda stats: stats.lookup_count - stats.hit_count),
    ("nv_cache_num_lookups", "Requests the cache was asked for", attrgetter("lookup_count")),
    ("nv_cache_num_evictions", "Responses thrown out for want of space", attrgetter("eviction_count")),
    ("nv_cache_lookup_duration", "Time of lookups, in microseconds", lambda stats: stats.lookup_ns // 1000),
    ("nv_cache_insertion_duration", "Time of insertions, in microseconds", lambda stats: stats.insertion_ns // 1000),
)
_SUMMARIES = (
    _Summary("nv_inference_request_summary_us", "Time from arrival to answer", attrgetter("request"), False),
    _Summary("nv_inference_queue_summary_us", "Time spent waiting for an instance", attrgetter("queue")),
    _Summary("nv_inference_compute_input_summary_us", "Time spent preparing inputs", attrgetter("compute_input")),
    _Summary("nv_inference_compute_infer_summary_us", "Time spent executing the model", attrgetter("compute_infer")),
    _Summary("nv_inference_compute_output_summary_us", "Time spent extracting outputs", attrgetter("compute_output")),
    _Summary("nv_cache_hit_summary_per_model", "Time of cache hits, in microseconds", attrgetter("cache_hit"), True),
    _Summary(
        "nv_cache_miss_summary_per_model", "Time of cache misses, in microseconds", attrgetter("cache_miss"), True
    ),
)
_HISTOGRAMS: tuple[tuple[str, str, Callable[[ModelStats], tuple[list[int], int]]], ...] = (
    (
        "trireme_request_latency_seconds",
        "Time from arrival to answer",
        lambda stats: (stats.request_buckets, stats.request_ns),
    ),
    (
        "trireme_queue_latency_seconds",
        "Time spent waiting for an instance",
        lambda stats: (stats.queue_buckets, stats.queue_ns),
    ),
    (
        "trireme_compute_latency_seconds",
        "Time of the execution in all its phases",
        lambda stats: (
            stats.compute_buckets,
            stats.compute_input_ns + stats.compute_infer_ns + stats.compute_output_ns,
        ),
    ),
)
_SECOND_NS = 1_000_000_000
_BOUNDS_SECONDS = tuple(bound / _SECOND_NS for bound in DEFAULT_BOUNDS_NS)


class _ModelEntry(NamedTuple):
    stats: ModelStats
    labels: str
    failure_labels: tuple[tuple[str, str], ...]  # reason, label text
    load_seconds: float
    has_cache: bool


class MetricsSource(Protocol):
    """Numbers that another room counts."""

    def write(self, writer: PageWriter) -> None:
        """Adds its metrics to a page; called on the event loop's thread."""


class MetricsRegistry:
    """Every source of metrics of one server, and the page they make together."""

    def __init__(
        self, options: MetricsOptions, *, clock: Clock = monotonic_ns, host: HostMetrics | None = None
    ) -> None:
        self.options = options
        self.custom = CustomMetrics()
        self.workers = WorkerHealth()
        self.response_cache: CacheStats | None = None  # set where the server has a cache of its own
        self.devices: DeviceMetrics | None = None  # set where there are accelerators to be shown
        self.on_demand: OnDemandMetrics | None = None  # set where requests load their models
        self.requests: RecentRequests | None = None  # set where single requests are shown
        self.others: list[MetricsSource] = []  # of rooms above this one
        self.change_count = 0  # moves when a model comes or goes
        self._clock = clock
        self.host = host or HostMetrics(options, clock=clock)
        self._models: dict[int, _ModelEntry] = {}

    def add_model(
        self,
        stats: ModelStats,
        labels: Mapping[str, str],
        load_seconds: float,
        histogram_buckets: Mapping[str, Sequence[float]] | None = None,
        *,
        has_cache: bool = False,
    ) -> None:
        """Shows the model from now on. `labels` come on top of model and version (`_<tag>` for metric tags);
        `histogram_buckets` maps a family to the bucket bounds that the model's configuration sets for it."""
        if self.options.histogram_latencies:
            bounds_ms = (histogram_buckets or {}).get(FIRST_RESPONSE, DEFAULT_FIRST_RESPONSE_BUCKETS_MS)
            stats.first_response = LatencyHistogram([round(bound * 1_000_000) for bound in bounds_ms])
        if self.options.summary_latencies:
            stats.summaries = LatencySummaries()
        if self.requests is not None:
            stats.watch = self.requests.watch(stats)
        base = {**labels, "model": stats.name, "version": str(stats.version)}
        failures = tuple((reason, label_text({**base, "reason": reason})) for reason in FAILURE_REASONS)
        self._models[id(stats)] = _ModelEntry(stats, label_text(base), failures, load_seconds, has_cache)
        self.change_count += 1

    def remove_model(self, stats: ModelStats) -> None:
        """Shows the model no longer."""
        self._models.pop(id(stats), None)
        if stats.watch is not None:
            stats.watch.end()
        self.change_count += 1

    def page(self) -> bytes:
        """The metrics page of this moment."""
        for entry in self._models.values():
            if entry.stats.bring_in is not None:
                entry.stats.bring_in()
        writer = PageWriter()
        self._write_counters(writer)
        self._write_gauges(writer)
        self.host.write(writer)
        if self.devices is not None:
            self.devices.write(writer)
        self._write_histograms(writer)
        self._write_summaries(writer)
        self.workers.write(writer)
        self.custom.write(writer)
        if self.on_demand is not None:
            self.on_demand.write(writer)
        for source in self.others:
            source.write(writer)
        return writer.page()

    def _write_counters(self, writer: PageWriter) -> None:
        moves = self.options.counter_latencies
        self._write_counter(writer, _SUCCESS, 1 if moves else 0)
        writer.family(_FAILURE[0], "counter", _FAILURE[1])
        for entry in self._models.values():
            for reason, labels in entry.failure_labels:
                writer.sample(labels, entry.stats.fail_counts[reason] if moves else 0)
        for counter in _COUNTS:
            self._write_counter(writer, counter, 1 if moves else 0)
        self._write_counter(writer, _UNCOUNTED, 1)
        if not moves:
            return
        for counter in _LATENCIES:
            self._write_counter(writer, counter, 1000)
        for counter in _CACHE_COUNTS:
            self._write_counter(writer, counter, 1, only_cached=True)
        for counter in _CACHE_LATENCIES:
            self._write_counter(writer, counter, 1000, only_cached=True)

    def _write_counter(self, writer: PageWriter, counter: _Counter, unit: int, only_cached: bool = False) -> None:
        writer.family(counter.name, "counter", counter.help_text)
        for entry in self._models.values():
            if entry.has_cache or not only_cached:
                writer.sample(entry.labels, counter.read(entry.stats) // unit if unit else 0)

    def _write_gauges(self, writer: PageWriter) -> None:
        writer.family("nv_inference_pending_request_count", "gauge", "Requests taken and not yet executing")
        for entry in self._models.values():
            writer.sample(entry.labels, entry.stats.pending_count())
        writer.family("nv_model_load_duration_secs", "gauge", "Seconds the model took to load")
        for entry in self._models.values():
            writer.sample(entry.labels, entry.load_seconds)
        if self.response_cache is not None:
            for name, help_text, read in _SERVER_CACHE:
                writer.family(name, "gauge", help_text)
                writer.sample("", read(self.response_cache))

    def _write_histograms(self, writer: PageWriter) -> None:
        writer.family(FIRST_RESPONSE, "histogram", "Milliseconds from arrival to the first response")
        for entry in self._models.values():
            observed = entry.stats.first_response
            if observed is not None:
                bounds_ms = [bound / 1_000_000 for bound in observed.bounds_ns]
                writer.histogram(entry.labels, bounds_ms, observed.counts, observed.sum_ns / 1_000_000)
        for name, help_text, read in _HISTOGRAMS:
            writer.family(name, "histogram", help_text)
            for entry in self._models.values():
                counts, total_ns = read(entry.stats)
                writer.histogram(entry.labels, _BOUNDS_SECONDS, counts, total_ns / _SECOND_NS)

    def _write_summaries(self, writer: PageWriter) -> None:
        now_ns = self._clock()
        wanted = self.options.summary_quantiles
        for summary in _SUMMARIES:
            writer.family(summary.name, "summary", summary.help_text)
            for entry in self._models.values():
                summaries = entry.stats.summaries
                if summaries is None or summary.is_for_cached not in (None, entry.has_cache):
                    continue
                observed = summary.read(summaries)
                quantiles = zip(wanted, observed.quantiles(now_ns, wanted), strict=True)
                writer.summary(entry.labels, observed.count, observed.sum_us, quantiles)
