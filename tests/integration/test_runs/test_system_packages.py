"""Programs that tests want, installed where they may be; a script stands in the place of the system's installer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import system_packages

FETCHES = """#!/bin/sh
echo "$@" >> $0.log
case $1 in
download)
  mkdir -p package/DEBIAN package/usr/bin
  for line in Package:prometheus Version:1 Architecture:all Maintainer:nobody Description:none; do
    echo $line >> package/DEBIAN/control
  done
  for name in prometheus promtool; do
    printf '#!/bin/sh\\n' > package/usr/bin/$name
    chmod +x package/usr/bin/$name
  done
  dpkg-deb --build --root-owner-group package $PWD > /dev/null
  rm -r package;;
esac
"""
FAILS = "#!/bin/sh\necho 'E: no such package' >&2\nexit 100\n"
needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg-deb here")


def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installer: str | None) -> Path:
    """The folder that is PATH but for the system's own, without any of the programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "mkdir", "printf", "chmod", "rm", "cat", "tar", "xz", "zstd", "gzip", "dpkg-deb", "dpkg-split"):
        if (found := shutil.which(name)) is not None:
            (folder / name).symlink_to(found)
    if installer is not None:
        (folder / "apt-get").write_text(installer)
        (folder / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(system_packages, "_BESIDE", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv("TRIREME_TEST_PACKAGES", raising=False)
    return folder


@needs_dpkg
def test_a_browser_is_installed_and_prometheus_unpacked_without_its_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place(tmp_path, monkeypatch, FETCHES)
    system_packages.main(tmp_path)
    asked = (folder / "apt-get.log").read_text().splitlines()
    install = "install -y -qq --no-install-recommends chromium chromium-headless-shell"
    assert asked == ["update -qq", install, "download -qq prometheus"]
    assert system_packages.program("promtool") == str(tmp_path / "promtool")
    assert subprocess.run([tmp_path / "prometheus"], check=False).returncode == 0


def test_what_cannot_be_installed_is_told_and_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place(tmp_path, monkeypatch, FAILS)
    system_packages.main(tmp_path)
    told = capsys.readouterr().out.splitlines()[-1]
    assert told == (
        "No Chromium and no Prometheus here, so some tests are skipped: apt-get update -qq: E: no such package"
    )


@pytest.mark.parametrize(
    ("cause", "told"),
    [("switch", "TRIREME_TEST_PACKAGES is 0"), ("user", "only root can install it"), ("system", "there is no apt-get")],
)
def test_nothing_is_installed_where_it_may_not_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cause: str, told: str
) -> None:
    folder = place(tmp_path, monkeypatch, None if cause == "system" else FETCHES)
    if cause == "switch":
        monkeypatch.setenv("TRIREME_TEST_PACKAGES", "0")
    if cause == "user":
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
    system_packages.main(tmp_path)
    assert told in capsys.readouterr().out
    assert not (folder / "apt-get.log").exists()


def test_nothing_is_said_where_all_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = place(tmp_path, monkeypatch, FAILS)
    for name in ("google-chrome", system_packages.HEADLESS_BROWSER, *system_packages.PROMETHEUS):
        (folder / name).symlink_to(sys.executable)
    system_packages.main(tmp_path)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("is_root", [True, False])
def test_a_whole_browser_does_where_that_without_windows_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_root: bool
) -> None:
    folder = place(tmp_path, monkeypatch, FAILS)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if is_root else 1000)
    for name in ("google-chrome", *system_packages.PROMETHEUS):
        (folder / name).symlink_to(sys.executable)
    system_packages.main(tmp_path)
    told = capsys.readouterr().out.splitlines()
    reason = "No chromium-headless-shell here, so some tests take longer: apt-get update -qq: E: no such package"
    assert told[1:] == ([reason] if is_root else [])
    assert system_packages.program(*system_packages.BROWSERS) == str(folder / "google-chrome")
