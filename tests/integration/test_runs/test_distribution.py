"""The list of what stays together and what begins first names what there is."""

from __future__ import annotations

from pathlib import Path

from distribution import FOLDERS_WITH_ONE_SERVER, LONGEST, PARTS, WITH_SERVERS_OF_THEIR_OWN, place_of, scope_of

ROOT = Path(__file__).parents[3]


def test_every_name_is_that_of_a_file_or_folder() -> None:
    for name in (*FOLDERS_WITH_ONE_SERVER, *WITH_SERVERS_OF_THEIR_OWN, *PARTS, *LONGEST):
        assert (ROOT / name).exists(), name


def test_every_long_one_is_a_scope() -> None:
    for name in LONGEST:
        file = next((ROOT / name).glob("test_*.py"), ROOT / name)
        scope = scope_of(f"{file.relative_to(ROOT)}::test_x").partition("#")[0]
        assert name in FOLDERS_WITH_ONE_SERVER or scope == name


def test_a_file_without_the_shared_server_leaves_its_folder() -> None:
    assert scope_of("tests/e2e/llm/test_shipped_model.py::test_x[a::b]") == "tests/e2e/llm"
    assert scope_of("tests/e2e/llm/test_ranks.py::test_x") == "tests/e2e/llm/test_ranks.py"


def test_the_longest_come_first() -> None:
    assert sorted(["tests/unit", LONGEST[1], "tests/docs", LONGEST[0]], key=place_of) == [
        *LONGEST[:2],
        "tests/unit",
        "tests/docs",
    ]


def test_the_tests_of_a_divided_file_are_in_so_many_parts_that_begin_as_early() -> None:
    for file, count in PARTS.items():
        scopes = {scope_of(f"{file}::test_x[{number}]") for number in range(100)}
        assert len(scopes) == count
        assert {place_of(scope) for scope in scopes} == {place_of(file)}
