"""Labels that a request brings, and the sentences that models compare with what it shows or plays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trireme.backends.compiled.batching import RequestError


def candidate_labels(options: Mapping[str, Any]) -> list[str]:
    """The option `candidate_labels`: texts, or one text with commas; raises RequestError where there are none."""
    given = options.get("candidate_labels", ())
    given = given[0].split(",") if len(given) == 1 else given
    labels = [label.strip() for label in given if label.strip()]
    if not labels:
        raise RequestError("'candidate_labels' are missing: give them as an input or a parameter")
    return labels


def hypotheses(labels: Sequence[str], options: Mapping[str, Any], template: str) -> list[str]:
    """A sentence of each label, by the option `hypothesis_template` or else this one."""
    template = options.get("hypothesis_template", template)
    if "{}" not in template:
        raise RequestError(f"'hypothesis_template' must have a {{}} for the label, found '{template}'")
    return [template.replace("{}", label) for label in labels]
