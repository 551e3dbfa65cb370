"""Gets the programs that some tests want and pip does not have: `python tests/system_packages.py`, before a whole run.

On Debian, as root, where nobody has to be asked: browsers through `apt-get install`, and Prometheus unpacked beside
the interpreter, because its package would start a service. Most pages are opened in a browser without windows, or in
the other one where there is none; tabs and kept pages are for that one alone. Elsewhere, and where that fails, it says
what is missing: the tests that want it are skipped, and say so too. `TRIREME_TEST_PACKAGES=0` has nothing installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HEADLESS_BROWSER = "chromium-headless-shell"
"""A Chromium without windows, which takes half of the processor time. Debian alone has it as a package."""
WHOLE_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSERS = (HEADLESS_BROWSER, *WHOLE_BROWSERS)
PROMETHEUS = ("prometheus", "promtool")
_LIMIT_S = 300.0
_BESIDE = Path(sys.executable).parent


def program(*names: str) -> str | None:
    """The path of the first of these programs that there is, on PATH or beside the interpreter."""
    places = os.pathsep.join([os.environ.get("PATH", os.defpath), str(_BESIDE)])
    return next((found for name in names if (found := shutil.which(name, path=places))), None)


def main(beside: Path = _BESIDE) -> None:
    browsers = [
        package
        for package, names in (("chromium", WHOLE_BROWSERS), (HEADLESS_BROWSER, (HEADLESS_BROWSER,)))
        if program(*names) is None
    ]
    wants_prometheus = not all(program(name) for name in PROMETHEUS)
    needed = {"Chromium": "chromium" in browsers, "Prometheus": wants_prometheus}
    missing = [name for name, is_missing in needed.items() if is_missing]
    reason = _why_not()
    if not missing and (reason is not None or not browsers):
        return  # a whole browser does in place of the other one
    if reason is None:
        wanted = [*browsers, *(["prometheus"] if wants_prometheus else [])]
        print(f"Installing for the tests: {' and '.join(wanted)}; TRIREME_TEST_PACKAGES=0 leaves it out.", flush=True)
        try:
            _run("apt-get", "update", "-qq")
            if browsers:
                _run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *browsers)
            if wants_prometheus:
                _unpack("prometheus", PROMETHEUS, beside)
            return
        except (OSError, subprocess.SubprocessError) as error:
            reason = f"{error}"
    if missing:
        print(f"No {' and no '.join(missing)} here, so some tests are skipped: {reason}", flush=True)
    else:
        print(f"No {HEADLESS_BROWSER} here, so some tests take longer: {reason}", flush=True)


def _why_not() -> str | None:
    """Why nothing is installed; None where it may be."""
    if os.environ.get("TRIREME_TEST_PACKAGES") == "0":
        return "TRIREME_TEST_PACKAGES is 0"
    if shutil.which("apt-get") is None:
        return "there is no apt-get to install it with"
    return None if os.geteuid() == 0 else "only root can install it"


def _unpack(package: str, programs: tuple[str, ...], beside: Path) -> None:
    """The programs of a Debian package, without its service."""
    with tempfile.TemporaryDirectory(prefix="trireme-package-") as folder:
        # apt-get fetches as another user where that one may write
        os.chmod(folder, 0o777)
        _run("apt-get", "download", "-qq", package, cwd=folder)
        (archive,) = Path(folder).glob("*.deb")
        _run("dpkg-deb", "-x", str(archive), f"{folder}/files")
        for name in programs:
            shutil.move(f"{folder}/files/usr/bin/{name}", beside / name)


def _run(*words: str, cwd: str | None = None) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        words, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S
    )
    if done.returncode:
        told = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise subprocess.SubprocessError(f"{' '.join(words)}: {' '.join(told) or f'exit code {done.returncode}'}")


if __name__ == "__main__":
    main()
