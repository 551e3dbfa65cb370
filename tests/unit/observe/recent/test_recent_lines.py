"""The last lines of the log, by model."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from trireme.observe.logs import ROOT, LogSettings, configure, keep_lines
from trireme.observe.recent.lines import RecentLines


@pytest.fixture
def lines() -> Iterator[RecentLines]:
    logger = logging.getLogger(ROOT)
    before = logger.handlers, logger.level, logger.propagate
    configure(LogSettings())
    yield keep_lines()
    logger.handlers, logger.level, logger.propagate = before


def texts(lines: RecentLines, model: str = "", after: int = 0) -> list[str]:
    return [line.text for line in lines.about(model, after)]


def test_lines_of_a_model_are_those_it_says_and_those_that_name_it(lines: RecentLines) -> None:
    log = logging.getLogger("trireme.registry")
    log.info("successfully loaded '%s'", "adder")
    log.info("successfully loaded '%s'", "adders")
    logging.getLogger("trireme.model.adder").warning("[adder_0] careful")
    assert texts(lines, "adder") == ["successfully loaded 'adder'", "[adder_0] careful"]
    assert len(texts(lines)) == 3


def test_lines_behind_a_number_follow(lines: RecentLines) -> None:
    log = logging.getLogger("trireme.app")
    log.info("one")
    number = lines.about("")[-1].number
    log.info("two")
    assert texts(lines, after=number) == ["two"]


def test_number_of_an_earlier_server_gets_all_lines(lines: RecentLines) -> None:
    logging.getLogger("trireme.app").info("one")
    assert texts(lines, after=4711) == ["one"]


def test_lines_survive_a_change_of_the_settings(lines: RecentLines) -> None:
    log = logging.getLogger("trireme.app")
    log.info("one")
    LogSettings().update({"log_format": "ISO8601"})
    log.info("two")
    assert texts(lines) == ["one", "two"]


def test_long_lines_are_cut_and_old_ones_go(lines: RecentLines) -> None:
    log = logging.getLogger("trireme.app")
    for number in range(2100):
        log.info("%d %s", number, "x" * 3000)
    kept = lines.about("", most=5000)
    assert len(kept) == 2000
    assert len(kept[0].text) == 2000
    assert kept[0].text.startswith("100 ")
