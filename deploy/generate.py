"""Writes deploy/grafana/ and deploy/prometheus/ from the metric definitions: python deploy/generate.py"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

DEPLOY = Path(__file__).parent
sys.path.insert(0, str(DEPLOY))

from alerts import ALERTS, Alert  # noqa: E402
from metric_definitions import definitions  # noqa: E402
from panels import DEVICES, LANGUAGE_MODEL, MODEL_PANELS, OVERVIEW, Panel  # noqa: E402

_NAME = re.compile(r"\b(?:nv_|trireme_|vllm:|llm:)\w+")
_SUFFIX = re.compile(r"_(?:bucket|sum|count)$")
_COUNTED = re.compile(r"(?:rate|increase)\(([\w:]+)")
_HEIGHT = 8
_COLUMNS = 24


def dashboard(title: str, uid: str, panels: Iterable[Panel], variable_metric: str = "") -> str:
    """A dashboard as Grafana imports it."""
    variables = [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}]
    if variable_metric:
        variables.append(_model_variable(variable_metric))
    document = {
        "uid": uid,
        "title": title,
        "tags": ["trireme"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "panels": _placed(panels),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def alert_rules() -> str:
    """The rules as Prometheus reads them."""
    lines = ["# Written by deploy/generate.py; change deploy/alerts.py and run `make dashboards`.", "groups:"]
    lines += ["  - name: trireme", "    rules:"]
    for alert in ALERTS:
        check_names(alert.expression)
        lines += _rule(alert)
    return "\n".join(lines) + "\n"


def check_names(expression: str) -> str:
    """The help text of the first metric of an expression; raises ValueError for one that the code does not define, or
    that is used against its kind."""
    known = definitions()
    names = _NAME.findall(expression)
    counted = {name if name in known else _SUFFIX.sub("", name) for name in _COUNTED.findall(expression)}
    for name in names:
        base = name if name in known else _SUFFIX.sub("", name)
        if base not in known:
            raise ValueError(f"there is no metric '{name}': {expression}")
        kind = known[base][0]
        if (kind == "gauge") == (base in counted):
            raise ValueError(f"'{base}' is a {kind}: {expression}")
        if (kind == "histogram") != (base != name):
            raise ValueError(f"'{name}' is a {kind}: {expression}")
    if not names:
        return ""
    return known[names[0] if names[0] in known else _SUFFIX.sub("", names[0])][1]


def _model_variable(metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, model)"
    return {
        "name": "model",
        "type": "query",
        "label": "Model",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "definition": query,
        "query": {"query": query, "refId": "model"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _placed(panels: Iterable[Panel]) -> list[dict[str, Any]]:
    placed, x, y = [], 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > _COLUMNS:
            x, y = 0, y + _HEIGHT
        placed.append(_panel(panel, number, x, y))
        x += panel.width
    return placed


def _panel(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    texts = [check_names(expression) for expression, _ in panel.queries]
    stacking = {"mode": "normal" if panel.is_stacked else "none"}
    custom = {"fillOpacity": 60 if panel.is_stacked else 10, "showPoints": "never", "stacking": stacking}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": texts[0],
        "datasource": source,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(65 + at), "datasource": source, "expr": expression, "legendFormat": legend}
            for at, (expression, legend) in enumerate(panel.queries)
        ],
    }


def _rule(alert: Alert) -> list[str]:
    return [
        f"      - alert: {alert.name}",
        f"        expr: {json.dumps(alert.expression)}",
        f"        for: {alert.lasting}",
        "        labels:",
        f"          severity: {alert.severity}",
        "        annotations:",
        f"          summary: {json.dumps(alert.summary)}",
        f"          description: {json.dumps(alert.advice)}",
    ]


FILES: dict[str, Callable[[], str]] = {
    "grafana/overview.json": lambda: dashboard("Trireme overview", "trireme-overview", OVERVIEW),
    "grafana/model.json": lambda: dashboard("Trireme model", "trireme-model", MODEL_PANELS, "nv_inference_count"),
    "grafana/language-model.json": lambda: dashboard(
        "Trireme language model", "trireme-language-model", LANGUAGE_MODEL, "vllm:generation_tokens_total"
    ),
    "grafana/devices.json": lambda: dashboard("Trireme devices", "trireme-devices", DEVICES),
    "prometheus/alerts.yml": alert_rules,
}


def main() -> None:
    for name, write in FILES.items():
        (DEPLOY / name).write_text(write(), encoding="utf-8")


if __name__ == "__main__":
    main()
