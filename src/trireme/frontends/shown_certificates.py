"""The certificates that a front-end process shows its clients. It reads and follows the files itself."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from functools import partial

from trireme.access.file_watch import FileWatch
from trireme.core.errors import ServingError
from trireme.frontends.tls import Certificates, TlsOptions

log = logging.getLogger(__name__)


class ShownCertificates:
    """By the numbers of the services. `tell` gets those that have one, at first and when there are more, unless no
    service needs any. Used on the event loop's thread."""

    def __init__(self, options: Sequence[TlsOptions | None], tell: Callable[[list[int]], None]) -> None:
        self._found: dict[int, Certificates] = {}
        self._awaited: dict[int, FileWatch[Certificates]] = {}
        self._tell = tell
        for service, tls in enumerate(options):
            if tls is not None:
                self._read(service, tls)
        if self._found or self._awaited:
            tell(list(self._found))

    def context(self, service: int) -> ssl.SSLContext | None:
        """For a handshake; None where the service has no TLS. Raises OSError where there is nothing to show."""
        if service in self._awaited:
            raise ConnectionAbortedError("there is no certificate to show")
        found = self._found.get(service)
        return None if found is None else found.context

    def stop(self) -> None:
        """Follows the files no longer."""
        for certificates in self._found.values():
            certificates.stop()
        for watch in self._awaited.values():
            watch.stop()

    def _read(self, service: int, tls: TlsOptions) -> None:
        watch = FileWatch(f"{tls.service} certificates", tls.files, partial(Certificates, tls))
        try:
            self._show(service, watch.read_first())
        except ServingError as error:
            log.error("%s", error.message)
            self._awaited[service] = watch
            watch.start(partial(self._show_at_last, service))

    def _show(self, service: int, certificates: Certificates) -> None:
        self._found[service] = certificates
        certificates.start()

    def _show_at_last(self, service: int, certificates: Certificates) -> None:
        self._awaited.pop(service).stop()
        self._show(service, certificates)
        self._tell(list(self._found))
