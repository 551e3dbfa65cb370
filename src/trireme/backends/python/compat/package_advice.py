"""What pip calls a package that a model imports by another name, and that is not installed."""

from __future__ import annotations

from trireme.backends.python.compat.report import add_note
from trireme.core.wording.distributions import distribution_of


def advise_package(error: BaseException) -> None:
    """Adds to the error how the package is installed, where its name is known to differ: one that pip has under the
    name of the import, or that is the model's own, needs no word."""
    name = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    package = distribution_of(name)
    if "." in name or package == name or str(error) != f"No module named '{name}'":
        return  # with a dot, it is a part that the installed release does not have
    add_note(error, f"pip install {package}, or name {package} in the model's requirements.txt")
