"""Changes to the key file: each leaves the rest of the file alone, and the file private."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from trireme.access.api_key import ApiKey, Quota
from trireme.access.groups import GROUPS
from trireme.access.key_file import KeyFileError, read_key_file
from trireme.access.key_secret import digest_of, new_secret
from trireme.access.key_writer import add_key, remove_key, rotate_key

CI = ApiKey("ci", (digest_of(b"one"),), frozenset(("inference", "health")), Quota(2.5, 1000, 4))
OPS = ApiKey("ops@home.net", (digest_of(b"two"),), frozenset(GROUPS))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


def test_secrets_are_long_random_and_recognisable() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    assert all(secret.startswith("trireme-") and len(secret) == 51 for secret in made)


def test_what_is_added_is_read_again(path: Path) -> None:
    add_key(path, CI)
    add_key(path, OPS)
    assert read_key_file(path) == [CI, OPS]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["keys.toml"]


def test_a_name_is_added_once(path: Path) -> None:
    add_key(path, CI)
    with pytest.raises(KeyFileError, match="it has a key named 'ci' already; 'trireme keys rotate' gives it another"):
        add_key(path, replace(CI, hashes=(digest_of(b"x"),)))


def test_comments_and_other_keys_stay(path: Path) -> None:
    add_key(path, CI)
    add_key(path, OPS)
    path.write_text(path.read_text() + '\n# for probes\n[anonymous]\ngroups = ["health"]\n')
    path.chmod(0o640)
    remove_key(path, "ci")
    assert [key.name for key in read_key_file(path)] == ["ops@home.net", "anonymous"]
    assert "# for probes\n[anonymous]" in path.read_text()
    assert path.read_text().startswith("# Keys of a Trireme server.")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_the_last_key_can_be_removed(path: Path) -> None:
    add_key(path, CI)
    remove_key(path, "ci")
    assert read_key_file(path) == []
    add_key(path, CI)
    assert read_key_file(path) == [CI]


def test_a_new_secret_holds_beside_the_newest_of_the_old_ones(path: Path) -> None:
    add_key(path, CI)
    add_key(path, OPS)
    rotate_key(path, "ci", digest_of(b"second"), ends_others=False)
    assert read_key_file(path)[0] == replace(CI, hashes=(digest_of(b"one"), digest_of(b"second")))
    rotate_key(path, "ci", digest_of(b"third"), ends_others=False)
    assert read_key_file(path) == [replace(CI, hashes=(digest_of(b"second"), digest_of(b"third"))), OPS]


def test_a_new_secret_can_end_the_old_ones_at_once(path: Path) -> None:
    add_key(path, CI)
    rotate_key(path, "ci", digest_of(b"second"), ends_others=True)
    assert read_key_file(path)[0].hashes == (digest_of(b"second"),)


@pytest.mark.parametrize("name", ["nobody", "anonymous", "c"])
def test_what_is_not_there_cannot_be_changed(path: Path, name: str) -> None:
    add_key(path, CI)
    path.write_text(path.read_text() + '[anonymous]\ngroups = ["health"]\n')
    before = path.read_text()
    with pytest.raises(KeyFileError, match=f"it has no key named '{name}'"):
        remove_key(path, name)
    with pytest.raises(KeyFileError, match=f"it has no key named '{name}'"):
        rotate_key(path, name, digest_of(b"x"), ends_others=False)
    assert path.read_text() == before


def test_a_key_written_in_another_way_is_left_to_a_person(path: Path) -> None:
    add_key(path, CI)
    table = path.read_text().split("[keys.ci]\n")[1]
    path.write_text("[keys]\n" + "".join(f"ci.{line}\n" for line in table.splitlines() if line))
    assert read_key_file(path) == [CI]
    with pytest.raises(KeyFileError, match=r"the table of 'ci' is not written as \[keys.ci\]; change it by hand"):
        remove_key(path, "ci")


def test_a_file_that_cannot_be_written_is_told(path: Path) -> None:
    with pytest.raises(KeyFileError, match="it cannot be written: No such file or directory"):
        add_key(path.parent / "missing" / "keys.toml", CI)


def test_a_linked_file_is_changed_where_it_is(path: Path) -> None:
    add_key(path, CI)
    link = path.with_name("link.toml")
    link.symlink_to(path)
    add_key(link, OPS)
    assert link.is_symlink()
    assert read_key_file(path) == [CI, OPS]
