"""Tokens that are empty, and the variable that a file insists on."""

from __future__ import annotations

import os
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from trireme.backends.python.compat.huggingface import access_token


@pytest.fixture
def headers() -> Any:
    module = ModuleType("headers")
    module.get_token_to_send = lambda token: token  # type: ignore[attr-defined]
    access_token.take_empty_as_none(module)
    return module


def test_an_empty_token_is_sent_as_none(headers: Any, told: set[str]) -> None:
    for token in ("t", None, False, True):
        assert headers.get_token_to_send(token) is token
    assert told == set()
    assert headers.get_token_to_send(" ") is None
    assert headers.get_token_to_send("") is None
    assert told == {"empty token"}


def test_with_rescues_off_it_is_sent_as_it_is(headers: Any, told: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIREME_COMPAT", "off")
    assert headers.get_token_to_send("") == ""
    assert told == set()


def test_the_variable_is_there_once_a_file_failed_without_it(told: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVATE_REPO_TOKEN", "")
    monkeypatch.delenv("PRIVATE_REPO_TOKEN")  # and what is set is undone
    for error in (KeyError("HF_TOKEN"), ValueError("PRIVATE_REPO_TOKEN"), KeyError()):
        assert not access_token.define_for(error)
    assert "PRIVATE_REPO_TOKEN" not in os.environ
    assert access_token.define_for(KeyError("PRIVATE_REPO_TOKEN"))
    assert os.environ["PRIVATE_REPO_TOKEN"] == ""
    assert not access_token.define_for(KeyError("PRIVATE_REPO_TOKEN"))  # which must be another matter now
    assert told == {"no private token"}


class _Answered(Exception):
    """As the library of the hub raises them, with the answer."""

    def __init__(self, status: int) -> None:
        self.response = SimpleNamespace(status_code=status)


def failure_after(cause: Exception) -> OSError:
    try:
        try:
            raise cause
        except Exception as error:
            raise OSError("the files could not be had") from error
    except OSError as error:
        return error


@pytest.mark.parametrize(
    ("cause", "is_advised"),
    [
        (_Answered(401), True),
        (_Answered(403), True),
        (_Answered(404), True),
        (_Answered(503), False),
        (ConnectionError("Temporary failure in name resolution"), False),
    ],
)
def test_a_token_is_spoken_of_where_the_hub_has_refused(
    cause: Exception, is_advised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIVATE_REPO_TOKEN", "")
    error = failure_after(cause)
    access_token.advise(error)
    assert ("export PRIVATE_REPO_TOKEN=hf_" in " ".join(getattr(error, "__notes__", []))) == is_advised
