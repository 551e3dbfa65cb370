"""What a path of Triton's protocol that does not exist was probably meant to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from trireme.core.close_names import closest
from trireme.frontends.http.head import Endpoint, RequestHead
from trireme.frontends.http.openapi.paths import templates
from trireme.frontends.http.routing import Route, refusing

PREFIX: Final = "/v2"
_NOT_FOUND: Final = "Not Found"
_MODELS: Final = "/v2/models"
_INDEX_ADVICE: Final = "POST /v2/repository/index lists the models"
_MOST_CHARS: Final = 256


def v2_refusal(head: RequestHead, routes: Sequence[Route], allowed: Sequence[str]) -> Endpoint | None:
    """Triton's answer, and behind its words what was probably meant; None for a path that exists."""
    if allowed:
        return None
    advice = ""
    if head.path.rstrip("/") == _MODELS:
        advice = _INDEX_ADVICE
    elif len(head.path) <= _MOST_CHARS:
        patterns = tuple(route.pattern.pattern for route in routes if route.pattern.pattern.startswith(PREFIX))
        meant = _meant(head.path, patterns)
        advice = f"did you mean '{meant}'?" if meant is not None else ""
    return refusing(404, f"{_NOT_FOUND}: {advice}" if advice else _NOT_FOUND)


def _meant(path: str, patterns: tuple[str, ...]) -> str | None:
    """The path with the fewest words changed; names of models and regions stay as they are given."""
    given = path.rstrip("/").split("/")
    candidates: dict[str, int] = {}
    is_close = cache(_is_close)  # for this path: templates have words in common, and clients choose theirs
    for template in _templates(patterns):
        changed = _corrected(given, template, is_close) if len(template) == len(given) else None
        if changed is not None:
            count = sum(one != other for one, other in zip(given, changed, strict=True))
            candidates.setdefault("/".join(changed), count)
    fewest = min(candidates.values(), default=0)
    nearest = [candidate for candidate, count in candidates.items() if count == fewest and candidate != path]
    if len(nearest) > 1:
        return closest(path, nearest, 0) or nearest[0]
    return nearest[0] if nearest else None


def _corrected(given: Sequence[str], template: Sequence[str], is_close: Callable[[str, str], bool]) -> list[str] | None:
    """None where a word is no misspelling of the template's."""
    words = []
    for have, wanted in zip(given, template, strict=True):
        is_name = wanted.startswith("{")
        if is_name and (not have or (wanted == "{version}" and not have.isdecimal())):
            return None
        if not is_name and have != wanted and not is_close(have, wanted):
            return None
        words.append(have if is_name else wanted)
    return words


def _is_close(have: str, wanted: str) -> bool:
    return closest(have, (wanted,)) is not None


@cache
def _templates(patterns: tuple[str, ...]) -> list[list[str]]:
    return [template.split("/") for pattern in patterns for template in templates(pattern)]
