"""The key file: what it says, and every mistake that can be in it, told with the place and the remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trireme.access.api_key import ANONYMOUS, Quota
from trireme.access.groups import GROUPS
from trireme.access.key_file import MAX_FILE_BYTES, KeyFileError, read_key_file
from trireme.access.key_secret import digest_of, hash_text

HASH = hash_text(digest_of(b"one"))
GOOD = f"""
[keys.ci]
hashes = ["{HASH}", "{hash_text(digest_of(b"two"))}"]
groups = ["inference", "health"]
requests_per_second = 2.5
bytes_per_second = 1000
requests_in_flight = 4

[keys."ops@home"]
hashes = ["{hash_text(digest_of(b"three"))}"]
groups = ["all"]

[anonymous]
groups = ["health"]
"""


@pytest.fixture
def write(tmp_path: Path):
    def written(text: str | bytes, mode: int = 0o600) -> Path:
        path = tmp_path / "keys.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)
        return path

    return written


def test_names_hashes_groups_and_quotas_are_read(write) -> None:
    ci, ops, anonymous = read_key_file(write(GOOD))
    assert (ci.name, ci.hashes) == ("ci", (digest_of(b"one"), digest_of(b"two")))
    assert ci.groups == {"inference", "health"}
    assert ci.quota == Quota(2.5, 1000, 4)
    assert (ops.name, ops.groups, ops.quota) == ("ops@home", frozenset(GROUPS), Quota())
    assert (anonymous.name, anonymous.hashes, anonymous.groups) == (ANONYMOUS, (), {"health"})


def test_a_file_may_be_empty_and_then_lets_nobody_in(write) -> None:
    assert read_key_file(write("")) == []


def key(fields: str, name: str = "ci") -> str:
    return f"[keys.{name}]\n{fields}\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[keys.ci", "it is not TOML: "),
        (key(f'hashes = ["{HASH}"]\ngroups = ["infer"]'), "in [keys.ci], there is no group 'infer'; there are health,"),
        (key(f'hashes = ["{HASH}"]'), "in [keys.ci], groups are missing"),
        (key(f'hashes = ["{HASH}"]\ngroups = []'), "in [keys.ci], groups must be a list of names"),
        (key(f'hashes = ["{HASH}"]\ngroups = "health"'), "in [keys.ci], groups must be a list of names"),
        (key('groups = ["health"]'), "in [keys.ci], hashes must be a list of hashes as 'trireme keys new' writes them"),
        (key('hashes = ["secret"]\ngroups = ["health"]'), "in [keys.ci], hash 1 is not 'sha256:' and 64 hexadecimal"),
        (key(f'hashes = ["{HASH}", 7]\ngroups = ["health"]'), "in [keys.ci], hash 2 is not 'sha256:'"),
        (key(f'hashes = ["{HASH}"]\ngroups = ["health"]\nrate = 1'), "in [keys.ci], 'rate' is not known; there are"),
        (
            key(f'hashes = ["{HASH}"]\ngroups = ["health"]\nrequests_per_second = 0'),
            "requests_per_second must be a number",
        ),
        (key(f'hashes = ["{HASH}"]\ngroups = ["health"]\nrequests_per_second = nan'), "requests_per_second must be"),
        (key(f'hashes = ["{HASH}"]\ngroups = ["health"]\nrequests_in_flight = 1.5'), "requests_in_flight must be"),
        (key(f'hashes = ["{HASH}"]\ngroups = ["health"]\nbytes_per_second = true'), "bytes_per_second must be"),
        (key(f'hashes = ["{HASH}"]\ngroups = ["health"]', '"a b"'), "the name 'a b' must be 1 to 64 letters"),
        (key(f'hashes = ["{HASH}"]\ngroups = ["health"]', "anonymous"), "'anonymous' is the name of clients without"),
        ("[key.ci]\n", "'key' is not known; there are [keys.NAME] and [anonymous]"),
        ("keys = 3\n", "'keys' must be tables"),
        ("[keys]\nci = 3\n", "in [keys.ci], there must be a table"),
        (f'[anonymous]\ngroups = ["health"]\nhashes = ["{HASH}"]', "in [anonymous], hashes make no sense"),
        (b"[keys.\xff]", "it is not UTF-8 at byte 6"),
        (b"#" * (MAX_FILE_BYTES + 1), "it is larger than"),
    ],
)
def test_mistakes_are_told_with_their_place(write, text: str | bytes, problem: str) -> None:
    path = write(text)
    with pytest.raises(KeyFileError) as caught:
        read_key_file(path)
    assert caught.value.message.startswith(f"the key file '{path}' cannot be used: ")
    assert problem in caught.value.message


def test_two_keys_of_one_name_are_told_with_the_line(write) -> None:
    table = key(f'hashes = ["{HASH}"]\ngroups = ["health"]')
    with pytest.raises(KeyFileError, match=r"there are two keys named 'ci' \(at line 5, column 9\)"):
        read_key_file(write(table + "\n" + table))


def test_two_names_with_one_secret_are_refused(write) -> None:
    table = f'hashes = ["{HASH}"]\ngroups = ["health"]'
    with pytest.raises(KeyFileError, match="'ci' and 'ops' have the same hash"):
        read_key_file(write(key(table) + key(table, "ops")))


@pytest.mark.parametrize(
    ("mode", "problem"),
    [
        (0o644, "everybody on this machine can read it (mode 0644); run: chmod 600 "),
        (0o604, "everybody on this machine can read it (mode 0604)"),
        (0o660, "others than its owner can write it (mode 0660); run: chmod 600 "),
    ],
)
def test_a_file_that_others_can_read_or_write_is_refused(write, mode: int, problem: str) -> None:
    with pytest.raises(KeyFileError) as caught:
        read_key_file(write(GOOD, mode))
    assert problem in caught.value.message


def test_a_file_that_a_group_can_read_is_used(write) -> None:
    assert len(read_key_file(write(GOOD, 0o640))) == 3


def test_a_missing_file_is_told_with_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="No such file or directory; 'trireme keys new' makes one"):
        read_key_file(tmp_path / "keys.toml")


def test_a_folder_is_no_key_file(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="Is a directory"):
        read_key_file(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_told(write) -> None:
    with pytest.raises(KeyFileError, match="Permission denied"):
        read_key_file(write(GOOD, 0o000))


def test_a_pipe_in_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys.toml", 0o600)
    with pytest.raises(KeyFileError, match="it is not a file"):
        read_key_file(tmp_path / "keys.toml")
