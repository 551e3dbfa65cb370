"""A model that fails to load or to initialize for a reason that is known here is helped, and tried once more.

Nothing is done before something has failed, so a file that has its own way out takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def with_second_try(call: Callable[[], T]) -> T:
    """What the call returns; it is made again after each failure that something can be done about, which is done once
    per process. Raises what the last one raised, in clearer words where software of an accelerator is missing,
    and with a note where a package is."""
    while True:
        try:
            return call()
        except (Exception, SystemExit) as error:
            # Here, because every worker loads this file and hardly any comes this far.
            from trireme.backends.python.compat import switches
            from trireme.backends.python.compat.accelerators.missing_software import stand_in_for
            from trireme.backends.python.compat.huggingface import access_token
            from trireme.backends.python.compat.package_advice import advise_package

            if not (switches.may_rescue() and access_token.define_for(error)) and not stand_in_for(error):
                access_token.advise(error)
                advise_package(error)
                raise
