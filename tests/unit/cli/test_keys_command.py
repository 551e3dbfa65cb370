"""`trireme keys`: what it prints, what it writes, and what it says about mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from trireme.access.api_key import Quota
from trireme.access.key_file import read_key_file
from trireme.access.key_secret import digest_of
from trireme.cli.main import main


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main(["keys", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.parametrize("words", [("--help",), ("new", "--help"), ("rotate", "-h"), ("help",)])
def test_help_is_no_mistake(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    code, out, err = run(capsys, *words)
    assert (code, err) == (0, "")
    assert out.startswith("Usage: trireme keys new FILE NAME")


def test_a_new_key_is_printed_alone_and_kept_as_a_hash(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    code, out, err = run(capsys, "new", path, "ci")
    secret = out.removesuffix("\n")
    assert code == 0
    assert secret.startswith("trireme-")
    assert "The key 'ci' may use health, metadata, model-config, inference. It is shown this once" in err
    assert secret not in err + path.read_text()
    (key,) = read_key_file(path)
    assert (key.name, key.hashes) == ("ci", (digest_of(secret.encode()),))


def test_groups_and_quotas_can_be_given(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    limits = ("--requests-per-second", "2.5", "--bytes-per-second=1000", "--requests-in-flight", "3")
    assert run(capsys, "new", path, "ci", "--groups", "health,metrics", *limits)[0] == 0
    (key,) = read_key_file(path)
    assert (key.groups, key.quota) == ({"health", "metrics"}, Quota(2.5, 1000, 3))


def test_the_list_has_names_groups_and_quotas(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    run(capsys, "new", path, "ci", "--groups", "health", "--requests-in-flight", "3")
    run(capsys, "new", path, "ops", "--groups", "all")
    _, out, _ = run(capsys, "list", path)
    assert "| ci   | 1    | health " in out
    assert "requests_in_flight 3" in out
    assert "statistics, trace, logging, recording, metrics" in out


def test_a_rotated_name_has_two_keys_and_a_removed_one_has_none(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    first = run(capsys, "new", path, "ci")[1].strip()
    second = run(capsys, "rotate", path, "ci")[1].strip()
    assert read_key_file(path)[0].hashes == (digest_of(first.encode()), digest_of(second.encode()))
    third = run(capsys, "rotate", path, "ci", "--only-new")[1].strip()
    assert read_key_file(path)[0].hashes == (digest_of(third.encode()),)
    assert run(capsys, "remove", path, "ci")[0] == 0
    assert read_key_file(path) == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("new", "FILE", "a b"), "the name 'a b' must be 1 to 64 letters"),
        (("new", "FILE", "ci", "--groups", "infer"), "there is no group 'infer'; there are health,"),
        (("new", "FILE", "ci", "--groups", ","), "groups must be a list of names"),
        (("new", "FILE", "ci", "--requests-per-second", "0"), "requests_per_second must be a number above 0"),
        (("new", "FILE", "ci", "--requests-per-second", "x"), "trireme keys: argument --requests-per-second"),
        (("new", "FILE"), "the following arguments are required: name"),
        (("make", "FILE"), "invalid choice: 'make'"),
        (("list", "FILE"), "No such file or directory; 'trireme keys new' makes one"),
        (("remove", "FILE", "ci"), "No such file or directory"),
        ((), "Usage: trireme keys new FILE NAME"),
    ],
)
def test_mistakes_are_told_and_write_nothing(
    capsys: pytest.CaptureFixture[str], path: Path, words: tuple[str, ...], problem: str
) -> None:
    code, out, err = run(capsys, *(str(path) if word == "FILE" else word for word in words))
    assert (code, out) == (1, "")
    assert problem in err
    assert not path.exists()


def test_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--help")[:2] == (0, run(capsys, "help")[1])
