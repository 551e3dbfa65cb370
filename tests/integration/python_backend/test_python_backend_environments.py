"""Environments of a model's own: requirements, folders and packed archives, with real workers."""

from __future__ import annotations

import io
import logging
import sys
import tarfile
import venv
from pathlib import Path
from typing import Any

import pytest

from trireme.core.errors import ErrorKind, ServingError


def test_requirements_that_cannot_be_installed_fail_the_load_with_the_installers_words(
    repository: Any, tell: Any
) -> None:
    async def main() -> None:
        with pytest.raises(ServingError) as caught:
            async with repository.serve(tell.code, tell.config, files={"requirements.txt": "./no-such-package-here\n"}):
                pass
        assert caught.value.kind == ErrorKind.INTERNAL
        assert "requirements.txt" in caught.value.message
        assert "no-such-package-here" in caught.value.message

    repository.run(main())


def test_requirements_already_there_give_an_environment_that_is_kept(repository: Any, tell: Any) -> None:
    async def main() -> None:
        async with repository.serve(tell.code, tell.config, files={"requirements.txt": "numpy\n"}) as model:
            prefix = (await tell.facts_of(model))["prefix"]
            assert Path(prefix).parent.name == "environments"
            marker = Path(prefix) / "marker"
            marker.touch()
        async with repository.serve(tell.code, tell.config, files={"requirements.txt": "numpy\n"}):
            assert marker.exists()

    repository.run(main())


def own_environment(folder: Path) -> None:
    """A virtual environment that sees the packages of this interpreter."""
    venv.create(folder, system_site_packages=True, symlinks=True)
    packages = next((folder / "lib").glob("python*/site-packages"))
    (packages / "shared.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))


def test_an_environment_folder_is_used(repository: Any, caplog: pytest.LogCaptureFixture, tell: Any) -> None:
    caplog.set_level(logging.INFO, logger="trireme")
    config = (
        tell.config + 'parameters { key: "EXECUTION_ENV_PATH" value: { string_value: "$$TRITON_MODEL_DIRECTORY/env" } }'
    )

    async def main() -> None:
        folder = repository.write(tell.code, config)
        own_environment(folder / "env")
        async with repository.serve(tell.code, config) as model:
            assert (await tell.facts_of(model))["prefix"] == str(folder / "env")
        assert f"Using Python execution env {folder}/env" in caplog.text

    repository.run(main())


def test_an_archive_is_unpacked_once_and_used(repository: Any, tmp_path: Path, tell: Any) -> None:
    """The packed environment is a stand-in: a script as interpreter, as links out of it would be refused."""
    env = tmp_path / "build"
    (env / "bin").mkdir(parents=True)
    script = env / "bin" / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    (env / "bin" / "conda-unpack").write_text("import sys, pathlib; pathlib.Path(sys.argv[0] + '.ran').touch()\n")
    config = (
        tell.config
        + 'parameters { key: "EXECUTION_ENV_PATH" value: { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }'
    )

    async def main() -> None:
        folder = repository.write(tell.code, config)
        with tarfile.open(folder / "env.tar.gz", "w:gz") as tar:
            tar.add(env, arcname=".")
        for _ in range(2):
            async with repository.serve(tell.code, config) as model:
                assert await tell.facts_of(model)
        unpacked = [path for path in (tmp_path / "cache" / "environments").iterdir() if path.is_dir()]
        assert len(unpacked) == 1
        assert (unpacked[0] / "bin" / "conda-unpack.ran").exists()

    repository.run(main())


def test_an_archive_that_escapes_is_refused_and_nothing_is_kept(repository: Any, tmp_path: Path, tell: Any) -> None:
    config = (
        tell.config
        + 'parameters { key: "EXECUTION_ENV_PATH" value: { string_value: "$$TRITON_MODEL_DIRECTORY/env.tar.gz" } }'
    )

    async def main() -> None:
        folder = repository.write(tell.code, config)
        with tarfile.open(folder / "env.tar.gz", "w:gz") as tar:
            info = tarfile.TarInfo("../../../evil")
            info.size = 4
            tar.addfile(info, io.BytesIO(b"evil"))
        with pytest.raises(ServingError, match=r"\.\./\.\./\.\./evil"):
            async with repository.serve(tell.code, config):
                pass
        assert not list(tmp_path.rglob("evil"))
        assert [path.suffix for path in (tmp_path / "cache" / "environments").iterdir()] == [".lock"]

    repository.run(main())
