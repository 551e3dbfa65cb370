"""Archives that try to write where they should not."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from trireme.backends.python.environment import archive
from trireme.core.errors import InvalidArgumentError, UnsupportedError


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def tar_of(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info in members:
            data = b"content" if info.isfile() else b""
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def folder(tmp_path: Path) -> Path:
    target = tmp_path / "inner" / "target"
    target.mkdir(parents=True)
    return target


def test_an_environment_is_unpacked_with_its_links_and_executables(tmp_path: Path) -> None:
    target = folder(tmp_path)
    packed = tar_of(
        tmp_path / "env.tar.gz",
        member("./"),
        member("bin", tarfile.DIRTYPE, mode=0o755),
        member("bin/python3.11", mode=0o755),
        member("bin/python", tarfile.SYMTYPE, "python3.11"),
        member("lib/deep/libx.so", tarfile.SYMTYPE, "../../bin/python3.11"),
        member("bin/copy", tarfile.LNKTYPE, "bin/python3.11", mode=0o755),
    )
    archive.unpack(packed, target)
    assert (target / "bin/python").read_bytes() == b"content"
    assert os.access(target / "bin/python", os.X_OK)
    assert (target / "lib/deep/libx.so").resolve() == (target / "bin/python3.11").resolve()
    assert (target / "bin/copy").read_bytes() == b"content"


@pytest.mark.parametrize(
    "members",
    [
        [member("../evil")],
        [member("/etc/evil")],
        [member("a/../../evil")],
        [member("evil", tarfile.SYMTYPE, "/etc/passwd")],
        [member("evil", tarfile.SYMTYPE, "../outside")],
        [member("a/evil", tarfile.SYMTYPE, "../../outside")],
        [member("a", tarfile.DIRTYPE), member("a/up", tarfile.SYMTYPE, "b/../../.."), member("a/b", tarfile.DIRTYPE)],
        [member("evil", tarfile.LNKTYPE, "../../etc/passwd")],
        [member("here", tarfile.SYMTYPE, "."), member("here/evil")],
        [member("evil", tarfile.FIFOTYPE)],
        [member("evil", tarfile.CHRTYPE)],
        [member("evil", tarfile.BLKTYPE)],
    ],
    ids=lambda members: f"{members[-1].name}-{members[-1].linkname or members[-1].type.decode()}",
)
def test_members_that_escape_are_refused(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    target = folder(tmp_path)
    with pytest.raises(InvalidArgumentError):
        archive.unpack(tar_of(tmp_path / "evil.tar.gz", *members), target)
    assert not (tmp_path / "inner" / "evil").exists()
    assert not (tmp_path / "inner" / "outside").exists()


def test_a_bomb_is_refused_before_it_fills_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "SMALL_BYTES", 1000)
    monkeypatch.setattr(archive, "MAX_GROWTH", 2)
    path = tmp_path / "bomb.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        info = member("zeros")
        info.size = 10_000_000
        tar.addfile(info, io.BytesIO(bytes(info.size)))
    with pytest.raises(InvalidArgumentError, match="unpacks to more"):
        archive.unpack(path, folder(tmp_path))


def test_zip_archives_keep_executables_and_refuse_escapes(tmp_path: Path) -> None:
    target = folder(tmp_path)
    good = tmp_path / "good.zip"
    with zipfile.ZipFile(good, "w") as packed:
        info = zipfile.ZipInfo("bin/python")
        info.external_attr = 0o100755 << 16
        packed.writestr(info, "content")
    archive.unpack(good, target)
    assert os.access(target / "bin/python", os.X_OK)
    for name, mode in (("../evil", 0o100644), ("link", 0o120777)):
        bad = tmp_path / "bad.zip"
        with zipfile.ZipFile(bad, "w") as packed:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            packed.writestr(info, "/etc/passwd")
        with pytest.raises(InvalidArgumentError):
            archive.unpack(bad, target)
    assert not (tmp_path / "inner" / "evil").exists()


def test_what_is_no_archive_is_a_clear_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(b"this is no archive")
    with pytest.raises(InvalidArgumentError, match="unable to unpack"):
        archive.unpack(broken, folder(tmp_path))
    with pytest.raises(UnsupportedError, match=r"\.tar\.gz"):
        archive.unpack(tmp_path / "env.rar", tmp_path)
