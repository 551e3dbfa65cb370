"""The token by its present name, where a release has lost the old one."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from trireme.backends.python.compat.huggingface import arguments


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"use_auth_token": "t"}, {"token": "t"}),
        ({"use_auth_token": True}, {"token": True}),
        ({"use_auth_token": None}, {}),
        ({"use_auth_token": "old", "token": "new"}, {"token": "new"}),
    ],
)
def test_the_old_argument_is_passed_by_the_new_name_and_told(
    told: set[str], given: dict[str, Any], expected: dict[str, Any]
) -> None:
    arguments.pass_by_new_name(given)
    assert given == expected
    assert told == {"use_auth_token"}


def test_nothing_is_done_where_rescues_are_off_or_there_is_nothing_to_do(
    told: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"token": "t", "revision": "main"}
    arguments.pass_by_new_name(given)
    assert given == {"token": "t", "revision": "main"}
    monkeypatch.setenv("TRIREME_COMPAT", "off")
    given = {"use_auth_token": "t"}
    arguments.pass_by_new_name(given)
    assert given == {"use_auth_token": "t"}
    assert told == set()


class Knowing:
    @classmethod
    def from_pretrained(cls, name: str, **kwargs: Any) -> Any:
        return kwargs.pop("use_auth_token", None)


class Listing:
    @classmethod
    def from_pretrained(cls, name: str, **kwargs: Any) -> Any:
        return [kwargs.get(each) for each in ("revision", "use_auth_token")]


class Forgetful:
    @classmethod
    def from_pretrained(cls, name: str, token: str | None = None) -> Any:
        return token


def patched(cls: Any) -> Any:
    module = ModuleType("library")
    copy = type(cls.__name__, (), dict(vars(cls)))
    module.Auto = copy  # type: ignore[attr-defined]
    arguments.accept_old_token("Auto")(module)
    return copy


def test_a_release_that_knows_the_argument_is_left_alone(told: set[str]) -> None:
    for cls, answer in ((Knowing, "t"), (Listing, [None, "t"])):
        copy = patched(cls)
        assert copy.__dict__["from_pretrained"] is cls.__dict__["from_pretrained"]
        assert copy.from_pretrained("m", use_auth_token="t") == answer
    assert told == set()


def test_a_release_that_lost_it_takes_it(told: set[str]) -> None:
    assert patched(Forgetful).from_pretrained("m", use_auth_token="t") == "t"
    assert told == {"use_auth_token"}


def test_of_a_pipeline_the_same() -> None:
    module = ModuleType("library")

    def pipeline(task: str, token: Any = None) -> Any:
        return token

    module.pipeline = pipeline  # type: ignore[attr-defined]
    arguments.accept_old_token_in_pipeline(module)
    assert module.pipeline("text-generation", use_auth_token="t") == "t"
