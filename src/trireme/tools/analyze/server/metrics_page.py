"""Which page of metrics is the measured server's, and not that of another one beside it."""

from __future__ import annotations

from collections.abc import Callable

from trireme.tools.analyze.server.resources import ResourceWatch
from trireme.tools.analyze.server.target import Target


def resource_watch(
    target: Target, interval_s: float, tell: Callable[[str], None]
) -> tuple[ResourceWatch | None, int | None]:
    """What can be seen of the server, and its process; says what cannot be. Raises ClientError."""
    process_id = target.process_id()
    problem = ""
    for url in target.metrics_urls(process_id):
        watch = ResourceWatch(url, interval_s, process_id, target.metrics_headers)
        named = watch.models()
        if named is None:
            problem = problem or f"no metrics at {url}"
            continue
        if target.is_metrics_url_given:
            return watch, process_id
        strangers = named - {entry["name"] for entry in target.client.index()}
        if not strangers:
            return watch, process_id
        problem = (
            f"the metrics at {url} are another server's, which has the model '{min(strangers)}' "
            "(--triton-metrics-url says where this one's are)"
        )
    problem = problem or "the server listens at no port for metrics"
    if process_id is None:
        tell(f"{problem}: memory and utilisation are not measured")
        return None, None
    tell(f"{problem}: utilisation is not measured")
    return ResourceWatch(None, interval_s, process_id), process_id
