"""The folder with a `config.pbtxt` for every variant that was measured."""

from __future__ import annotations

from pathlib import Path

from trireme.tools.analyze.configuration.variant_text import variant_text
from trireme.tools.analyze.errors import InputError
from trireme.tools.analyze.options import OutputOptions
from trireme.tools.analyze.report.subject import Subject

_FIRST_LINE = "# Written by trireme analyze."


def check_repository(options: OutputOptions, repository: str | None) -> None:
    """What is not ours is not written over; raises InputError."""
    folder = Path(options.output_repository)
    if repository is not None and folder.resolve() == Path(repository).resolve():
        raise InputError("the output model repository must not be the model repository itself")
    if options.may_override or not folder.exists():
        return
    if not folder.is_dir():
        raise InputError(f"the output model repository '{folder}' is no folder")
    for path in folder.glob("*/config.pbtxt"):
        try:
            is_ours = path.read_bytes().startswith(_FIRST_LINE.encode())
        except OSError as error:
            raise InputError(f"'{path}' cannot be read: {error.strerror}") from None
        if not is_ours:
            raise InputError(
                f"'{path}' was not written by an analysis: name another folder with --output-model-repository-path, or "
                "allow it with --override-output-model-repository"
            )


def write_variants(subject: Subject, options: OutputOptions) -> None:
    """One folder for each variant of each model; raises InputError."""
    for one in subject.ranked:
        for model, setting in one.settings:
            folder = Path(options.output_repository) / subject.findings.variant_name(model, setting)
            text = variant_text(subject.config_of(model, setting))
            try:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "config.pbtxt").write_text(f"{_FIRST_LINE}\n{text}", encoding="utf-8")
            except OSError as error:
                raise InputError(f"'{folder}' cannot be written: {error.strerror}") from None
