"""Where the console of a running server is."""

from __future__ import annotations

from running_server import RunningServer


def console_of(server: RunningServer, view: str = "") -> str:
    """The address of the console, or of a view of it."""
    return f"http://localhost:{server.ports['http']}/{f'#/{view}' if view else ''}"
