"""Texts of others on a terminal: nothing moves its cursor, changes its colours or fills it without end."""

from __future__ import annotations

from trireme.observe.terminal.plain_text import one_line, shown_lines, shown_name


def test_control_characters_are_written_out() -> None:
    assert one_line("a\x1b[31mb\r\n\x07\u202e\udce9") == "a\\x1b[31mb\\r\\n\\x07\\u202e\\udce9"
    assert one_line("grüße, 日本 !") == "grüße, 日本 !"


def test_long_names_and_messages_are_cut() -> None:
    assert shown_name("x" * 100) == "x" * 100
    assert shown_name("x" * 101) == "x" * 100 + "... (101 characters)"
    assert shown_lines("a\n\x1b\n" + "x" * 1001) == "a\n\\x1b\n" + "x" * 1000 + "... (1001 characters)"
    assert shown_lines("\n".join("a" * 51)).split("\n")[49:] == ["a", "... (51 lines)"]
