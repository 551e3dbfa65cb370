"""How deeply JSON is read: the same in every version of Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from trireme.core.reading.json_levels import MAX_LEVELS, DeepJsonError, read_json


@pytest.fixture(params=["own limit", "none"])
def levels_of_python(request: pytest.FixtureRequest) -> Iterator[None]:
    """Newer versions of Python have no limit for JSON, which older ones can be given."""
    limit = sys.getrecursionlimit()
    if request.param == "none":
        sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("levels_of_python")
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[1,"[",', "]"), ('{"b":"{","a":', "}")])
def test_a_text_has_so_many_levels_and_no_more(opening: str, closing: str) -> None:
    text = opening * MAX_LEVELS + "1" + closing * MAX_LEVELS
    assert _innermost(read_json(text)) == 1
    assert _innermost(read_json(text.encode())) == 1
    for levels in (MAX_LEVELS + 1, 3_000, 100_000):
        deeper = opening * levels + "1" + closing * levels
        for given in (deeper, deeper.encode()):
            with pytest.raises(DeepJsonError, match="nested too deeply: it has more than 254 levels"):
                read_json(given)


def test_what_is_long_and_not_deep_is_read() -> None:
    assert read_json("[" + ",".join(["[[1],[]]"] * 1000) + "]") == [[[1], []]] * 1000
    assert read_json('{"text":"' + "[{" * 1000 + '"}') == {"text": "[{" * 1000}


def test_what_is_no_json_is_told_with_its_place() -> None:
    with pytest.raises(ValueError, match="line 1 column 2") as refused:
        read_json("[")
    assert not isinstance(refused.value, DeepJsonError)


def _innermost(value: Any) -> Any:
    while isinstance(value, (list, dict)):
        value = value[-1] if isinstance(value, list) else value["a"]
    return value
