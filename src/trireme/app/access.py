"""The gate that the server's options ask for, and the key file that it follows."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from trireme.access.access_log import AccessLog
from trireme.access.api_key import ApiKey
from trireme.access.file_watch import FileWatch
from trireme.access.gate import Gate
from trireme.access.key_file import read_key_file
from trireme.access.key_metrics import KeyMetrics
from trireme.access.key_ring import KeyRing
from trireme.app import options as app_options
from trireme.config.options.server import ServerOptions
from trireme.frontends.tls import Certificates
from trireme.observe.metrics import MetricsRegistry


class Access:
    """Who may use the server; made before anything is loaded, so that a bad file is told at once."""

    def __init__(self, options: ServerOptions, metrics: MetricsRegistry) -> None:
        """Raises ServingError for a file that cannot be used."""
        _check_certificates(options)
        self._keys: KeyRing | None = None
        self._key_watch: FileWatch[list[ApiKey]] | None = None
        if options.api_keys is not None:
            path = Path(options.api_keys)
            self._key_watch = FileWatch(f"API keys '{path}'", [path], partial(read_key_file, path))
            counts = KeyMetrics()
            metrics.others.append(counts)
            self._keys = KeyRing(self._key_watch.read_first(), counts)
        self._log: AccessLog | None = None
        if options.access_log is not None:
            self._log = AccessLog(options.access_log, options.access_log_format)
            metrics.others.append(self._log)
        self.gate = Gate(self._keys, self._log, options.api_key_header)

    def start(self) -> None:
        """Follows the key file from now on."""
        if self._key_watch is not None and self._keys is not None:
            self._key_watch.start(self._keys.replace)

    def stop(self) -> None:
        """Follows it no longer, and ends the access log."""
        if self._key_watch is not None:
            self._key_watch.stop()
        if self._log is not None:
            self._log.close()


def _check_certificates(options: ServerOptions) -> None:
    """Raises ServingError for those that do not work, which the listeners would find only behind the models."""
    chosen = (
        app_options.grpc_options(options).tls,
        app_options.http_options(options).tls,
        app_options.metrics_frontend_options(options).tls,
    )
    for tls in chosen:
        if tls is not None:
            Certificates(tls)
