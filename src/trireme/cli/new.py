"""`trireme new`: the folder of a new model, which runs as it is, with its test."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from trireme.cli.endings import parsed
from trireme.config.nearest import suggestion
from trireme.config.options.flag_parser import FlagParser
from trireme.core.errors import ServingError
from trireme.tools.new_model.templates import DEFAULT_HUB_MODEL, TEMPLATES
from trireme.tools.new_model.write import write_model

SUMMARY = "write the folder of a new model, with its test"

_DESCRIPTION = "Writes the folder of a model that runs as it is, and a test of it: change both into yours."


def main(arguments: Sequence[str]) -> int:
    """Writes, and says what to do next; the exit code of the process."""
    given = parsed(_parser(), arguments)
    repository = Path(given.repository)
    if given.template not in TEMPLATES:
        print(
            f"trireme new: there is no template '{given.template}'{suggestion(given.template, TEMPLATES)}",
            file=sys.stderr,
        )
        return 1
    try:
        written = write_model(given.template, given.name, repository, given.model)
    except ServingError as error:
        print(f"trireme new: {error.message}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"trireme new: {error.filename or repository}: {error.strerror}", file=sys.stderr)
        return 1
    print("\n".join(_told(given.template, given.name, repository, written)))
    return 0


def _parser() -> argparse.ArgumentParser:
    kinds = "\n".join(f"  {kind:<14}{template.summary}" for kind, template in TEMPLATES.items())
    parser = FlagParser(
        "trireme new",
        description=_DESCRIPTION,
        epilog=f"templates:\n{kinds}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="the model's name, which is that of its folder")
    parser.add_argument("--template", default="python", metavar="KIND", help="one of those below; default: %(default)s")
    parser.add_argument(
        "--repository", default="model_repository", metavar="FOLDER", help="where to put it; default: %(default)s"
    )
    parser.add_argument(
        "--model",
        default=DEFAULT_HUB_MODEL,
        metavar="ID",
        help="for the template transformers: a model of the Hub, or a folder; default: %(default)s",
    )
    return parser


def _told(kind: str, name: str, repository: Path, written: Sequence[Path]) -> list[str]:
    lines = [f"Wrote the model '{name}':", *(f"  {path}" for path in written), ""]
    template = TEMPLATES[kind]
    if template.package is not None and importlib.util.find_spec(template.package) is None:
        lines += [f"It needs a package that is not installed here: pip install {template.install}", ""]
    if importlib.util.find_spec("pytest") is None:
        lines += ["Its test needs pytest, which is not installed here: pip install pytest", ""]
    return [
        *lines,
        "Its test, and a server that loads it again when you change it:",
        f"  pytest {repository / name}",
        f"  trireme serve {repository} --watch",
    ]
