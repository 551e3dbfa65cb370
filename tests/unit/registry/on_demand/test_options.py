"""The options of mode auto: bytes with units, seconds, and what the registry is told."""

from __future__ import annotations

import pytest

from trireme.app.options import registry_options
from trireme.config.options.option import OptionError
from trireme.config.options.parser import parse_options
from trireme.config.options.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", 1 << 20),
        ("512MB", 512_000_000),
        ("512MiB", 512 << 20),
        ("512m", 512 << 20),
        ("1.5 GiB", 3 << 29),
        ("2T", 2 << 40),
        ("7B", 7),
    ],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "many", "-1", "1x", "1iB", "MB", "1e3", "1MiBB"])
def test_anything_else_is_no_size(text: str) -> None:
    assert parse_size(text) is None


def test_options_of_mode_auto_are_read() -> None:
    flags = "--model-control-mode=auto --on-demand-memory-budget=2GiB --on-demand-ttl=0.5 --pin-model=a --pin-model=b"
    options = parse_options(flags.split(), {}).options
    assert (options.on_demand_memory_budget, options.on_demand_ttl, options.pin_model) == (2 << 30, 0.5, ("a", "b"))
    told = registry_options(options)
    assert (told.is_on_demand, told.allows_control, told.loads_every_model) == (True, True, False)
    assert (told.on_demand.memory_budget_bytes, told.on_demand.ttl_s, told.on_demand.pinned) == (
        2 << 30,
        0.5,
        ("a", "b"),
    )


@pytest.mark.parametrize("flag", ["--on-demand-memory-budget=lots", "--on-demand-ttl=-1", "--on-demand-load-timeout=x"])
def test_bad_values_are_refused_with_their_flag(flag: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_options(["--model-control-mode=auto", flag], {})
    assert flag.partition("=")[0] in str(caught.value)
