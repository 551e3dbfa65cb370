"""The last lines of the log, by model."""

from __future__ import annotations

import logging
import time
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


def test_lines_behind_a_number_leave_no_gap(lines: RecentLines) -> None:
    log = logging.getLogger("trireme.app")
    for number in range(500):
        log.info("%d", number)
    begin = lines.about("")[0].number - 300
    assert texts(lines, after=begin) == [str(number) for number in range(1, 201)]
    assert texts(lines)[-1] == "499"


def test_numbers_of_the_next_server_are_greater(lines: RecentLines) -> None:
    logging.getLogger("trireme.app").info("one")
    last = lines.about("")[-1].number
    time.sleep(0.01)
    following = RecentLines()
    following.emit(logging.LogRecord("trireme.app", logging.INFO, "", 0, "first", (), None))
    assert [line.text for line in following.about("", last)] == ["first"]


def test_lines_of_instances_are_the_models_and_those_of_longer_names_are_not(lines: RecentLines) -> None:
    log = logging.getLogger("trireme.backends")
    for name in ("resnet_0", "resnet_0_1", "resnet_50_v2", "resnet_large", "resnet_0_1_2"):
        log.info("worker '%s' starts", name)
    log.info("loading: resnet:1")
    log.info("loading: my_resnet:1")
    found = ["worker 'resnet_0' starts", "worker 'resnet_0_1' starts", "loading: resnet:1"]
    assert texts(lines, "resnet") == found


def test_talkative_model_pushes_out_no_lines_of_others(lines: RecentLines) -> None:
    logging.getLogger("trireme.registry").info("successfully loaded 'quiet'")
    logging.getLogger("trireme.model.quiet").info("hello")
    for number in range(5000):
        logging.getLogger("trireme.model.loud").info("%d", number)
    assert texts(lines, "quiet") == ["successfully loaded 'quiet'", "hello"]
    assert texts(lines, "loud")[-1] == "4999"
    assert len(texts(lines, "loud")) == 200


def test_lines_of_many_models_are_bounded(lines: RecentLines) -> None:
    for number in range(60):
        logging.getLogger(f"trireme.model.m{number}").info("here")
    assert texts(lines, "m9") == []
    assert texts(lines, "m10") == ["here"]


def test_number_of_an_earlier_server_gets_all_lines(lines: RecentLines) -> None:
    logging.getLogger("trireme.app").info("one")
    assert texts(lines, after=10**15 - 1) == ["one"]


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
