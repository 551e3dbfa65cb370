"""Why a server could not load its models, found in its log: a sentence for each of them."""

from __future__ import annotations

import builtins
import re
from pathlib import Path

import trireme

_FAILURE = re.compile(
    r"^[EF]\d{4} [^]\n]*\] (?:failed to load '(?P<model>[^'\n]*)' version \d+: |"
    r"Poll failed for model directory '(?P<folder>[^'\n]*)': )(?P<text>.*?)"
    r"(?=\n[EFWI]\d{4} |\nerror: |\Z)",
    re.DOTALL | re.MULTILINE,
)
_KIND = re.compile(r"(?:Internal|Invalid argument|Invalid arg|Not found|Unavailable|Unsupported): ")
_ERROR = re.compile(r"(\w+): ")
_TRACE = "\n\nAt:\n"
_OWN_CODE = str(Path(trireme.__file__).parent)


def load_failures(log: str) -> dict[str, str]:
    """By model: what was wrong, in a few words where it was told in them; what models of users say has its trace."""
    found = {}
    for match in _FAILURE.finditer(log):
        found[match["model"] or match["folder"] or ""] = _told(match["text"].strip())
    return found


def _told(text: str) -> str:
    told, _, trace = text.partition(_TRACE)
    told = _KIND.sub("", told.strip(), count=1)
    named = _ERROR.match(told)
    if named is not None and named[1].endswith("Error") and not hasattr(builtins, named[1]):
        told = told[named.end() :]
    elsewhere = [line for line in trace.splitlines() if line.strip() and _OWN_CODE not in line]
    return "\n".join([told, "At:", *elsewhere]) if elsewhere else told
