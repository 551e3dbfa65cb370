"""The file of a recording: private, never half written, read back in the order of time."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from trireme.core.recorded_call import RecordedCall, RecordedResponse
from trireme.core.tensor import Tensor
from trireme.protocol.recording.calls import encode_begin, encode_call, encode_calls, encode_end
from trireme.protocol.recording.frames import MAGIC, encode_frame
from trireme.tools.client.errors import InputError
from trireme.tools.record.errors import RecordingFileError
from trireme.tools.record.progress import size_text
from trireme.tools.record.reading import RecordingReader
from trireme.tools.record.writing import RecordingFile

START = MAGIC + encode_begin({"id": "x", "sample": 1.0})


def call(at_ns: int, model: str = "m", size: int = 4) -> RecordedCall:
    tensor = Tensor("A", "UINT8", (size,), b"1" * size)
    return RecordedCall(at_ns, model, inputs=(tensor,), responses=(RecordedResponse(7, (tensor,)),))


def written(path: Path, *contents: bytes) -> Path:
    file = RecordingFile(str(path))
    for content in contents:
        file.write(content)
    file.close()
    return path


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    path = written(tmp_path / "a.rec", START)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    file = RecordingFile(str(path), is_replaced=True)
    file.write(START)
    file.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "a.rec", START)
    with pytest.raises(InputError, match="--append adds to it, --overwrite replaces it"):
        RecordingFile(str(path))
    with pytest.raises(InputError, match="No such file or directory"):
        RecordingFile(str(tmp_path / "nowhere" / "a.rec"))


def test_calls_whose_answer_was_still_on_its_way_are_counted(tmp_path: Path) -> None:
    file = RecordingFile(str(tmp_path / "a.rec"))
    file.write(START + encode_call(call(1)) + encode_call(replace(call(2), is_finished=False)))
    file.close()
    assert (file.call_count, file.unfinished_count) == (2, 1)


def test_nothing_recorded_leaves_no_file(tmp_path: Path) -> None:
    RecordingFile(str(tmp_path / "a.rec")).close()
    assert list(tmp_path.iterdir()) == []


def test_what_is_to_be_replaced_stays_until_the_recording_has_begun(tmp_path: Path) -> None:
    path = written(tmp_path / "a.rec", START, encode_call(call(1)))
    before = path.read_bytes()
    path.chmod(0o640)
    RecordingFile(str(path), is_replaced=True).close()
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    file = RecordingFile(str(path), is_replaced=True)
    file.write(START)
    assert (file.size_bytes, file.added_bytes) == (len(START), len(START))
    file.close()
    assert path.read_bytes() == START


def test_an_empty_file_that_is_replaced_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    path.touch(0o644)
    RecordingFile(str(path), is_replaced=True).close()
    assert path.exists()
    file = RecordingFile(str(path), is_replaced=True)
    file.write(START)
    file.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_no_regular_file_is_neither_removed_nor_changed(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o644)
    path.chmod(0o644)
    RecordingFile(str(path), is_replaced=True).close()
    file = RecordingFile(str(path), is_replaced=True)
    file.write(START)
    file.close()
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_calls_come_back_by_time_and_recordings_one_behind_the_other(tmp_path: Path) -> None:
    path = written(tmp_path / "a.rec", START, encode_calls([call(30), call(10), call(20)]), encode_end({"seen": 3}))
    second = RecordingFile(str(path), is_appended=True)
    second.write(START + encode_call(call(5, "n")))
    assert (second.call_count, second.end) == (1, None)
    second.close()
    recording = RecordingReader(str(path))
    assert [(place.at_ns, found.at_ns) for place, found in recording.calls()] == [
        (10, 10),
        (20, 20),
        (30, 30),
        (1_000_000_035, 5),
    ]
    assert recording.contents.models == {"m": 3, "n": 1}
    assert recording.contents.warnings() == ["a recording in the file was not ended in good order"]
    assert len(recording.contents.begins) == 2
    recording.close()


def test_what_is_no_regular_file_can_be_appended_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    file = RecordingFile(str(tmp_path / "pipe"), is_appended=True)
    file.write(START)
    assert file.added_bytes == len(START)
    file.close()


def test_a_cut_file_is_read_up_to_the_cut_and_can_be_appended_to(tmp_path: Path) -> None:
    path = written(tmp_path / "a.rec", START, encode_call(call(1)))
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(encode_call(call(2))[:-3])
    recording = RecordingReader(str(path))
    assert len(recording.contents.places) == 1
    assert recording.contents.warnings() == [f"the file is cut off at byte {whole}; what is before it is used"]
    recording.close()
    more = RecordingFile(str(path), is_appended=True)
    more.write(encode_call(call(3)))
    more.close()
    recording = RecordingReader(str(path))
    assert [found.at_ns for _, found in recording.calls()] == [1, 3]
    assert recording.contents.damages == []
    recording.close()


def test_damage_is_told_and_left_out(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.rec", START, encode_call(call(1)), encode_call(call(2)), encode_frame({"kind": "call"})
    )
    content = bytearray(path.read_bytes())
    content[len(START) + 40] ^= 1
    path.write_bytes(bytes(content))
    recording = RecordingReader(str(path))
    assert [place.at_ns for place in recording.contents.places] == [2]
    damaged, unreadable, _ = recording.contents.warnings()
    assert "damaged and left out" in damaged
    assert unreadable == "1 entry describes no request and is left out"
    recording.close()


def test_a_file_says_which_server_it_is_of(tmp_path: Path) -> None:
    facts = {"id": "x", "server": "triton", "server_version": "2.50.0"}
    for begin, told in (({**facts, "trireme": "0.1.0"}, "Trireme 0.1.0"), (facts, "triton 2.50.0")):
        content = MAGIC + encode_begin(begin), encode_call(call(1)), encode_end({"dropped": 1})
        reader = RecordingReader(str(written(tmp_path / f"{told}.rec", *content)))
        assert reader.contents.begins == [f"recorded from {told}, sample 1"]
        assert reader.contents.warnings() == ["the server had no room for 1 request, which is not in the file"]
        reader.close()


def test_what_a_file_says_of_itself_may_be_anything(tmp_path: Path) -> None:
    begin, end = encode_begin({"id": [], "sample": "all", "server": {}}), encode_end({"dropped": "many"})
    reader = RecordingReader(str(written(tmp_path / "a.rec", MAGIC + begin, encode_call(call(1)), end)))
    assert reader.contents.begins == ["recorded from {} None, sample all"]
    assert reader.contents.warnings() == []
    reader.close()


def test_of_many_damages_the_first_are_told(tmp_path: Path) -> None:
    path = written(tmp_path / "a.rec", START)
    path.write_bytes(START + (encode_call(call(1)) + b"?") * 100 + encode_end({"dropped": 3}) + b"cut")
    reader = RecordingReader(str(path))
    told = reader.contents.warnings()
    assert len(reader.contents.places) == 100
    assert len(reader.contents.damages) == 6
    assert told[0].startswith("1 bytes at byte ")
    assert "the file is cut off at byte" in told[5]
    assert told[6:] == [
        "95 more places are damaged and left out",
        "the server had no room for 3 requests, which are not in the file",
    ]
    reader.close()


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(InputError, match="is no recording"):
        RecordingReader(str(tmp_path / "a.txt"))
    with pytest.raises(InputError, match="cannot append"):
        RecordingFile(str(tmp_path / "a.txt"), is_appended=True)
    assert (tmp_path / "a.txt").read_text() == "hello"
    with pytest.raises(InputError, match="No such file"):
        RecordingReader(str(tmp_path / "b.rec"))
    with pytest.raises(InputError, match="directory"):
        RecordingReader(str(tmp_path))


def test_what_is_no_part_of_a_recording_is_not_written(tmp_path: Path) -> None:
    file = RecordingFile(str(tmp_path / "a.rec"))
    file.write(START)
    with pytest.raises(RecordingFileError, match="no part of a recording"):
        file.write(b"<html>a proxy's page</html>")
    file.close()


FULL_DISK = """
import resource, sys
from trireme.tools.record.errors import RecordingFileError
from trireme.tools.record.writing import RecordingFile
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
file = RecordingFile(sys.argv[1])
content = open(sys.argv[2], "rb").read()
try:
    file.write(content)
except RecordingFileError as error:
    print(error)
file.close()
"""


def test_where_there_is_no_more_room_the_file_ends_with_a_whole_frame(tmp_path: Path) -> None:
    frames = [START, *(encode_call(call(number, size=600)) for number in range(10))]
    (tmp_path / "content").write_bytes(b"".join(frames))
    path = tmp_path / "a.rec"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path), str(tmp_path / "content")],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    recording = RecordingReader(str(path))
    count = len(recording.contents.places)
    assert 0 < count < 10
    assert recording.contents.damages == []
    assert done.stdout.strip().endswith(f"keeps the {count} requests before it")
    recording.close()


def test_sizes_for_people() -> None:
    assert [size_text(size) for size in (0, 1023, 1024, 5 << 20, 3 << 30)] == [
        "0 bytes",
        "1023 bytes",
        "1.0 KiB",
        "5.0 MiB",
        "3.0 GiB",
    ]
