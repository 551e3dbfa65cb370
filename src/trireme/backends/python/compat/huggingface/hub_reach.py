"""Whether the Hugging Face hub can be reached: one look, for the time of one question, and another one a while later.

The library asks for each file of a model, and for each that is not in the cache it asks a silent hub six times, which
together takes minutes.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from socket import create_connection
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

from trireme.huggingface.deadline import within

AGAIN_S = 60.0
"""A hub that was out of reach is looked at again after this time; one that was reached never is."""
_PAUSE_S = 1.0
_PORTS = {"http": 80, "https": 443}
_PROXY_PORTS = {**_PORTS, "socks4": 1080, "socks4a": 1080, "socks5": 1080, "socks5h": 1080}


@dataclass(frozen=True, slots=True)
class _Finding:
    reason: str | None
    """Why it was out of reach; None where it was reached."""
    at_s: float
    was_patient: bool

    def holds(self, is_patient: bool) -> bool:
        if self.reason is None:
            return True
        return time.monotonic() - self.at_s < AGAIN_S and self.was_patient >= is_patient


_findings: dict[tuple[str, str | None], _Finding] = {}  # by endpoint and proxy
_looking = threading.Lock()


def why_out_of_reach(
    endpoint: str, limit_s: float, proxies: Mapping[str, str] | None = None, is_patient: bool = False
) -> str | None:
    """None where somebody answers, whatever the answer is. With a proxy, the environment's or the one that is given,
    the proxy is looked at. Who is patient has it looked at until the time is over, however soon a look fails."""
    proxy = _proxy(endpoint, proxies)
    with _looking:
        finding = _findings.get((endpoint, proxy))
        if finding is None or not finding.holds(is_patient):
            reason = _look(endpoint, proxy, limit_s, is_patient)
            finding = _findings[endpoint, proxy] = _Finding(reason, time.monotonic(), is_patient)
    return finding.reason


def was_reached(endpoint: str, proxies: Mapping[str, str] | None = None) -> bool:
    """Whether an earlier look got an answer, in the same way."""
    finding = _findings.get((endpoint, _proxy(endpoint, proxies)))
    return finding is not None and finding.reason is None


def _proxy(endpoint: str, proxies: Mapping[str, str] | None) -> str | None:
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    if proxies is None:
        proxies = {} if proxy_bypass(host) else getproxies()
    keys = (f"{parts.scheme}://{host}", parts.scheme, f"all://{host}", "all")  # from the most precise on
    return next((proxies[key] for key in keys if proxies.get(key)), None)


def _look(endpoint: str, proxy: str | None, limit_s: float, is_patient: bool) -> str | None:
    began = time.monotonic()
    while True:
        reason = _one_look(endpoint, proxy, limit_s)
        if reason is None or not is_patient or time.monotonic() - began + _PAUSE_S >= limit_s:
            return reason
        time.sleep(_PAUSE_S)


def _one_look(endpoint: str, proxy: str | None, limit_s: float) -> str | None:
    call: Callable[[], None]
    if proxy is None:
        whose, call = "", lambda: _ask(urlsplit(endpoint), limit_s)
    else:
        place = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        whose, call = f"the proxy '{place.hostname}': ", lambda: _connect(place, limit_s)
    try:
        within(limit_s, call)
    except TimeoutError:
        return f"{whose}no answer within {limit_s:g} s, which HF_HUB_ETAG_TIMEOUT changes"
    except OSError as error:
        return f"{whose}{type(error).__name__}: {error}".strip().splitlines()[0]
    except ValueError:  # an address that only the library can read
        return None
    return None


def _ask(place: SplitResult, limit_s: float) -> None:
    """Returns when there is an answer, be it one of refusal; raises OSError where there is none."""
    address = place.hostname or "", place.port or _PORTS.get(place.scheme, 80)
    connection = http.client.HTTPConnection(*address, timeout=2 * limit_s)  # ends what is left behind
    if place.scheme == "https":
        context = ssl.create_default_context()  # a certificate that it refuses is an answer, and nothing is sent
        connection = http.client.HTTPSConnection(*address, timeout=2 * limit_s, context=context)
    try:
        connection.request("HEAD", place.path or "/")
        connection.getresponse()
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, http.client.RemoteDisconnected):  # hung up, as firewalls do
        raise
    except (ssl.SSLError, http.client.HTTPException):
        return
    finally:
        connection.close()


def _connect(place: SplitResult, limit_s: float) -> None:
    """To a proxy, which may speak something that is not known here."""
    create_connection((place.hostname or "", place.port or _PROXY_PORTS.get(place.scheme, 80)), 2 * limit_s).close()
