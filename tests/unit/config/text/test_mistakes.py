"""Reading on after a mistake."""

from __future__ import annotations

import pytest

from trireme.config.text.mistakes import read_all


def test_every_mistake_is_found_and_the_rest_is_read() -> None:
    reading = read_all(
        'bakend: "python"\ninput { data_type: FP32 }\nmax_batch_size: eight\nfoo { bar: 1 }\nname: "m"\n'
    )
    assert [mistake.line for mistake in reading.mistakes] == [1, 2, 3, 4]
    assert reading.message is not None
    assert (reading.message.backend, reading.message.name, reading.message.max_batch_size) == ("python", "m", 0)
    assert reading.message.input[0].data_type == 11


def test_second_value_of_a_field_is_a_mistake_and_the_first_one_counts() -> None:
    reading = read_all('name: "a"\nname: "b"\n')
    assert [mistake.line for mistake in reading.mistakes] == [2]
    assert reading.message is not None
    assert reading.message.name == "a"


@pytest.mark.parametrize("text", ['name: "x', "input [ { ", "name = 1", "hello", "}", "max_batch_size: 8 }"])
def test_text_without_structure_ends_at_the_first_mistake(text: str) -> None:
    reading = read_all(text)
    assert reading.message is None
    assert len(reading.mistakes) == 1


def test_number_of_no_enum_value_is_a_problem_with_its_place() -> None:
    reading = read_all("input { data_type: 99 }\noutput { data_type: 98 }\n")
    assert [problem.place for problem in reading.problems] == ["input[0].data_type", "output[0].data_type"]


def test_file_full_of_mistakes_ends() -> None:
    assert len(read_all("a: 1\n" * 1000).mistakes) == 50
