"""Which levels of a range are visited, and where a server is looked for."""

from __future__ import annotations

import pytest

from trireme.tools.perf.address import Address, parse_address
from trireme.tools.perf.errors import PerfError
from trireme.tools.perf.model import describe
from trireme.tools.perf.options import Range
from trireme.tools.perf.search import binary, linear


def visits(search: str, levels: Range, holds_to: float, most: float | None = None) -> list[float]:
    seen: list[float] = []

    def visit(level: float) -> bool:
        seen.append(level)
        return level <= holds_to

    if search == "binary":
        binary(levels, visit)
    else:
        linear(levels, visit, most)
    return seen


def test_a_linear_search_goes_to_the_end_or_the_limit() -> None:
    assert visits("linear", Range(2, 16, 4), 99) == [2, 6, 10, 14]
    assert visits("linear", Range(4, 1, 1), 99) == [4]
    assert visits("linear", Range(1, 0, 2), 4) == [1, 3, 5]
    assert visits("linear", Range(1, 0, 2), 99, most=4) == [1, 3]


def test_a_binary_search_closes_in_on_the_limit() -> None:
    assert visits("binary", Range(1, 9, 1), 99) == [1, 9]
    assert visits("binary", Range(1, 9, 1), 6) == [1, 9, 5, 7, 6]
    assert visits("binary", Range(1, 9, 1), 0) == [1]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("localhost:9000", Address("localhost", 9000)),
        ("localhost", Address("localhost", 8000)),
        ("[::1]:9000", Address("::1", 9000)),
        ("https://host/base/", Address("host", 443, True, "/base")),
        ("http://host:81", Address("host", 81)),
    ],
)
def test_addresses_have_several_forms(url: str, address: Address) -> None:
    assert parse_address(url, 8000) == address


@pytest.mark.parametrize("url", ["", "host:port", "ftp://host", "host:99999"])
def test_what_is_no_address_is_said(url: str) -> None:
    with pytest.raises(PerfError, match="is no address of a server"):
        parse_address(url, 8000)


def test_an_ensemble_is_described_with_what_it_is_made_of() -> None:
    configs = {
        "outer": {"max_batch_size": 4, "ensemble_scheduling": {"step": [{"model_name": "b"}, {"model_name": "a"}]}},
        "a": {"sequence_batching": {}, "response_cache": {"enable": True}},
        "b": {"ensemble_scheduling": {"step": [{"model_name": "c", "model_version": "3"}]}},
        "c": {},
    }
    metadata = {
        "name": "outer",
        "inputs": [{"name": "IN", "datatype": "FP32", "shape": ["-1", "3"]}],
        "outputs": [],
    }
    model = describe(metadata, configs["outer"], "", lambda name, version: configs[name], (("called", "2"),))
    assert [(part.name, part.version) for part in model.parts] == [("a", ""), ("b", ""), ("called", "2")]
    assert [(part.name, part.version) for part in model.parts[1].parts] == [("c", "3")]
    assert model.is_sequence
    assert model.is_cached
    assert model.inputs[0].shape == (3,)
