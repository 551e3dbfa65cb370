"""Text that grows: pieces join to the whole, characters are never cut, stop texts never shown."""

from __future__ import annotations

from collections.abc import Sequence

from trireme.backends.transformers.text.generated_text import GeneratedText, PromptPrefix


def utf8(ids: Sequence[int]) -> str:
    """A token is a byte, and 0 a special one."""
    return bytes(ids).replace(b"\0", b"").decode(errors="replace")


class Pieces(list[str]):
    """Keeps what is emitted, and "." for the end."""

    def __call__(self, text: str) -> None:
        self.append(text)

    def end(self) -> None:
        self.append(".")


def grown(content: str, stops: Sequence[str] = (), limit: int = 100) -> tuple[list[str], str, int]:
    """The pieces, the text and the number of bytes taken."""
    pieces = Pieces()
    text = GeneratedText(utf8, frozenset({0}), limit, stops, lambda: False, pieces)
    count = 0
    for byte in content.encode():
        if text.is_done:
            break
        text.push(byte)
        count += 1
    whole = text.finish()
    assert text.finish() == whole
    assert pieces.pop() == ".", "the end is told once, and last"
    return pieces, whole, count


def test_pieces_join_to_the_text() -> None:
    pieces, text, _ = grown("ahoy")
    assert (pieces, text) == (["a", "h", "o", "y"], "ahoy")


def test_a_character_of_several_tokens_comes_whole() -> None:
    pieces, text, _ = grown("añ⛵!")
    assert (pieces, text) == (["a", "ñ", "⛵", "!"], "añ⛵!")


def test_a_stop_text_is_not_shown_nor_its_beginning() -> None:
    pieces, text, count = grown("one END two", ["END"])
    assert (pieces, text, count) == (["o", "n", "e", " "], "one ", 7)


def test_what_only_begins_like_a_stop_text_is_shown_late() -> None:
    pieces, text, _ = grown("an ENd", ["END"])
    assert (pieces[-1], text, "".join(pieces)) == ("ENd", "an ENd", "an ENd")


def test_the_limit_and_the_end_token_end_a_text() -> None:
    assert grown("ahoy", limit=2) == (["a", "h"], "ah", 2)
    assert grown("ah\0oy") == (["a", "h"], "ah", 3)


def test_a_prompt_comes_before_the_first_piece_or_alone() -> None:
    for words, expected in ((["one", " two"], ["Say: one", " two", "."]), ([], ["Say: ", "."])):
        pieces = Pieces()
        emit = PromptPrefix("Say: ", pieces)
        for word in words:
            emit(word)
        emit.end()
        assert pieces == expected


def test_nobody_listening_ends_a_text() -> None:
    text = GeneratedText(utf8, frozenset(), 100, (), lambda: True, None)
    text.push(65)
    assert text.is_done
    assert text.finish() == ""
