"""Every request as JSON, whatever its answers say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest

from trireme.tools.perf.data.batches import RequestContent
from trireme.tools.perf.load.building import LoadRecipe
from trireme.tools.perf.load.records import Records, RequestDetail
from trireme.tools.perf.measure.window import Window
from trireme.tools.perf.options import PerfOptions, ReportOptions
from trireme.tools.perf.preparation import PreparedLoad
from trireme.tools.perf.report.profile_export import write_profile
from trireme.tools.perf.wire import answers

BODY = b'{"outputs":[{"name":"O","datatype":"FP32","shape":[1],"data":[%b]}]}'
BINARY = b'{"outputs":[{"name":"O","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":%d}}]}'


def exported(path: Path, body: tuple[int | None, bytes]) -> Any:
    details = [RequestDetail(0, 0, 1, (2,), (body,))]
    window = Window(Records(np.zeros((1, 7), np.int64), details), 10**9)
    prepared = PreparedLoad(LoadRecipe(PerfOptions(), ANY, (), answers.HTTP), (RequestContent((), ()),))
    write_profile(PerfOptions(report=ReportOptions(profile_file=str(path))), [("concurrency", 1, [window])], prepared)
    return json.loads(path.read_bytes())["experiments"][0]["requests"][0]["response_outputs"]


@pytest.mark.parametrize(
    ("values", "written"),
    [
        (b"1.5, NaN, -Infinity", [1.5, "nan", "-inf"]),
        (b"[1], [NaN]", [[1], ["nan"]]),
        (b'"\xff"', ["\N{REPLACEMENT CHARACTER}"]),
    ],
)
def test_values_that_json_does_not_have_are_texts(tmp_path: Path, values: bytes, written: list[Any]) -> None:
    assert exported(tmp_path / "a.json", (None, BODY % values)) == [{"O": written}]


@pytest.mark.parametrize(("data", "written"), [(b"\0\0\xc0\x7f", ["nan"]), (b"\1\2\3", [1, 2, 3])])
def test_binary_outputs_are_numbers_where_they_can_be(tmp_path: Path, data: bytes, written: list[Any]) -> None:
    document = BINARY % len(data)
    assert exported(tmp_path / "a.json", (len(document), document + data)) == [{"O": written}]
