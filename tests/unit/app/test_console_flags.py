"""The flags that the console shows: their values for people, secrets left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trireme.app.console import flag_states
from trireme.config.options.server import ServerOptions
from trireme.config.options.setting_values import CacheSettings


def test_passwords_are_hidden_wherever_they_stand() -> None:
    cache = CacheSettings("redis", {"host": "localhost", "password": "hunter2"})
    states = {state.flag: state.value for state in flag_states(replace(ServerOptions(), cache_config=cache))}
    assert states["cache-config"] == "name=redis, settings=host=localhost, password=•••"
    assert "hunter2" not in str(states)


@pytest.mark.parametrize(
    ("name", "is_hidden"),
    [
        ("dbpasswd", True),
        ("auth", True),
        ("credential", True),
        ("api_key", True),
        ("apiKey", True),
        ("API_TOKEN", True),
        ("max_tokens", False),
        ("author", False),
        ("accesskey", True),
        ("authtoken", True),
        ("APIKey", True),
        ("monkey", True),  # rather hidden than shown
    ],
)
def test_secret_is_known_by_the_words_of_its_name(name: str, is_hidden: bool) -> None:
    cache = CacheSettings("mine", {name: "value"})
    states = {state.flag: state.value for state in flag_states(replace(ServerOptions(), cache_config=cache))}
    assert states["cache-config"] == f"name=mine, settings={name}={'•••' if is_hidden else 'value'}"
