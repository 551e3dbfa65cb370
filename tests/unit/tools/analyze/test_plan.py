"""From models and options to searches."""

from __future__ import annotations

from typing import Any

from trireme.tools.analyze.options import AnalyzeOptions, ModelOptions, SearchOptions
from trireme.tools.analyze.plan import plan_searches


def ensemble(size: int, *steps: str) -> dict[str, Any]:
    return {"max_batch_size": size, "ensemble_scheduling": {"step": [{"model_name": name} for name in steps]}}


def test_steps_are_searched_from_the_largest_batch_of_all_ensembles_above_them() -> None:
    configs = {
        "outer": ensemble(4, "inner", "last"),
        "inner": ensemble(8, "first"),
        "first": {"max_batch_size": 8},
        "last": {"max_batch_size": 8},
    }
    options = AnalyzeOptions(models=(ModelOptions("outer"),), search=SearchOptions(max_batch_size=16))
    (search,) = plan_searches(options, configs.__getitem__)
    sizes = {
        one.name: axis.values for one in search.space.tunables for axis in one.axes if axis.field == "max_batch_size"
    }
    assert sizes == {"first": (8, 16), "last": (4, 8, 16)}
