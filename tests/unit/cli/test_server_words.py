"""The words that say which server a command asks."""

from __future__ import annotations

import argparse

import pytest

from trireme.cli.client.server_words import add_server_words, connection_options


@pytest.mark.parametrize("words", [["-u", "host:1"], ["--url", "host:1"], ["--url=host:1"]])
def test_the_server_is_named_as_to_the_load_generator(words: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_server_words(parser)
    assert connection_options(parser.parse_args(words)).url == "host:1"
