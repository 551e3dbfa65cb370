"""What a worker changes in its process before it loads a model: logging that nobody takes, and a watch on imports."""

from __future__ import annotations

import sys
from collections.abc import Callable

from trireme.backends.python.compat import import_hook, numpy_names, switches
from trireme.backends.python.pb_utils.logger import route_standard_logging
from trireme.backends.python.worker.torch_threads import TorchThreads


def install_hooks(threads: TorchThreads) -> Callable[[], None]:
    """Returns what undoes it, for a process that is not a model's own. Patches of libraries stay, and look at the
    words of the moment."""
    finders = list(sys.meta_path)
    undo_logging = route_standard_logging(from_info=switches.is_asked_for("logging"))
    import_hook.install()
    import_hook.patch_imported()
    numpy_names.restore_if_asked()
    threads.watch_import()

    def undo() -> None:
        threads.unwatch_import()
        undo_logging()
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder in finders or not _is_ours(finder)]
        for name, module in list(sys.modules.items()):
            if _is_ours(getattr(module, "__loader__", None)):  # stands in for one that is not installed
                del sys.modules[name]

    return undo


def _is_ours(part: object) -> bool:
    return type(part).__module__.startswith("trireme.")
