"""A name for --debug that no model has."""

from __future__ import annotations

import logging

import pytest

from trireme.app.start_tables import tell_of_debugging
from trireme.config.options.server import ServerOptions


@pytest.mark.parametrize(
    ("named", "told"),
    [
        (None, []),
        ("reverse", []),
        ("revers", ["--debug names 'revers', and no model of that name was loaded, did you mean 'reverse'?"]),
        ("other", ["--debug names 'other', and no model of that name was loaded"]),
    ],
)
def test_a_name_that_no_model_has_is_told(named: str | None, told: list[str], caplog: pytest.LogCaptureFixture) -> None:
    options = ServerOptions(model_repository=("repository",), debug=named)
    with caplog.at_level(logging.WARNING):
        tell_of_debugging(options, ["adder", "reverse"])
    assert caplog.messages == told
