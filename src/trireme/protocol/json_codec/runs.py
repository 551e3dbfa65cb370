"""Runs of a JSON text that are found at once, where the fast parser does not read it.

Nothing in them is tried twice: a text may be made to take long. The last branch of what is repeated for that without a
way back never matches: Python before 3.11.5 ends such a run not where its last round began, but within what that round
has tried in vain.
"""

from __future__ import annotations

import re

TEXT_RUN = re.compile(
    rb"""(?x)(?:[ !\x23-\x5b\x5d-\x7f]++|\\["\\/bfnrt]
    |\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}
    |[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xed[\x80-\x9f][\x80-\xbf]
    |\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2}|(?!))++"""
)
"""Whole characters and escapes of a string, none of which the fast parser refuses."""

NUMBER_RUN = re.compile(rb'[^\[\]{}"]*,')
"""Elements of a list, up to the last comma before a string or another list."""

_TEXT = rb'"(?:[^"\\]++|\\.|(?!))*+"'
_FLAT = rb'\[(?:[^\[\]{}"]++|' + _TEXT + rb"|(?!))*+\]"
_NESTED = rb'\[(?:[^\[\]{}"]++|' + _TEXT + rb"|" + _FLAT + rb"|(?!))*+\]"
_ELEMENT = rb'[^\[\]{},"]*+(?:' + _TEXT + rb"|" + _NESTED + rb"|(?<=[0-9a-z]))[ \n\r\t]*+,"
ELEMENT_RUN = re.compile(rb"(?:" + _ELEMENT + rb"|(?!))++", re.DOTALL)
"""List elements, each with the comma behind it: numbers and words, strings, lists of at most two levels."""
