"""Regular expressions of RE2, which Triton's flags take, as Python's."""

from __future__ import annotations

import re

import pytest

from trireme.config.options.re2 import to_python


@pytest.mark.parametrize(
    ("pattern", "found", "missed"),
    [
        ("^x-", ["X-a", "x-a"], ["ax-"]),
        ("(?-i)^X-", ["X-a"], ["x-a"]),
        ("a(?-i)B|C", ["aB", "AB", "C"], ["ab", "c"]),
        ("(a(?-i)B|C)d", ["aBd", "CD"], ["abd", "cd"]),
        ("(?-i:X)y", ["Xy", "XY"], ["xy"]),
        ("(?-i)a(?i)b", ["ab", "aB"], ["Ab"]),
        ("(?U)^a*$", ["aaa", "A"], ["b"]),
        ("(?s)a.b", ["a\nb"], ["ab"]),
        (r"^[[:alpha:]][^[:digit:]]\z", ["ab", "Zx"], ["a1", "1a", "ab "]),
        (r"\Qa.b\E|^c$", ["a.b", "c"], ["axb"]),
        (r"[]a[]", ["]", "[", "A"], ["b"]),
        (r"\(\?-i\)", ["(?-i)"], ["x"]),
    ],
)
def test_the_expression_finds_what_re2_finds(pattern: str, found: list[str], missed: list[str]) -> None:
    compiled = re.compile(to_python(pattern), re.IGNORECASE)
    assert [text for text in found if not compiled.search(text)] == []
    assert [text for text in missed if compiled.search(text)] == []


@pytest.mark.parametrize("pattern", ["(", "a)", "[a", "(?)", "*", "(?-i", "(?q)a"])
def test_what_is_no_expression_is_refused(pattern: str) -> None:
    with pytest.raises(re.error):
        to_python(pattern)
