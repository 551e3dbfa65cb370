"""The `endpoint-load-metrics` header: how full the key-value cache of a TensorRT-LLM model is."""

from __future__ import annotations

import re

_SERIES = re.compile(
    rb'^nv_trt_llm_kv_cache_block_metrics\{[^}\n]*kv_cache_block_type="(used|max|tokens_per)"[^}\n]*\} (\S+)$',
    re.MULTILINE,
)


def load_metrics_line(form: str, metrics_page: bytes) -> bytes:
    """The header line in the form asked for, `text` or `json`; nothing where the metrics are not there."""
    blocks = {kind.decode(): float(value) for kind, value in _SERIES.findall(metrics_page)}
    if form not in ("text", "json") or len(blocks) < 3 or not blocks["max"]:
        return b""
    utilization = blocks["used"] / blocks["max"]
    capacity = int(blocks["max"] * blocks["tokens_per"])
    if form == "text":
        value = f"TEXT named_metrics.kv_cache_utilization={utilization:f}, named_metrics.max_token_capacity={capacity}"
    else:
        value = f'JSON {{"named_metrics":{{"kv_cache_utilization":{utilization:f},"max_token_capacity":{capacity}}}}}'
    return f"endpoint-load-metrics: {value}\r\n".encode()
