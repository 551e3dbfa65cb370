"""The conversation: lines in, answers out as they are written, and what each of them cost."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

from trireme.cli.terminal_chat.client import ChatClient, ChatDelta, ChatError, LongChatError, Message
from trireme.core.exit_codes import INTERRUPTED

COMMANDS = """/reset         begin anew; what /system said stays
/system TEXT   tell the model how to behave, and begin anew
/exit          end; so does Ctrl+D. Ctrl+C ends an answer"""
_BEGIN_ANEW = "\nThe chat has become too long for the model: /reset begins anew."
_DIM, _PLAIN, _PROMPT = "\x1b[2m", "\x1b[0m", "\x1b[1m> \x1b[0m"


class ChatSession:
    """On a terminal it shows a prompt and uses dim letters for what is no answer; otherwise answers alone go out."""

    def __init__(self, client: ChatClient, model: str, system: str, options: dict[str, Any]) -> None:
        self._client = client
        self._model = model
        self._system = _readable(system)
        self._options = options
        self._messages: list[Message] = []
        self._is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._has_failed = False

    def run(self) -> int:
        """Talks until the end of the input or `/exit`; the exit code."""
        if self._is_terminal:
            _load_line_editing()
            print(f"{_DIM}{self._model} at {self._client.url}\n{COMMANDS}{_PLAIN}")
        while True:
            try:
                line = _readable(input(_PROMPT if self._is_terminal else "")).strip()
            except EOFError:
                return int(self._has_failed)
            except KeyboardInterrupt:
                if not self._is_terminal:
                    return INTERRUPTED
                print(f"\n{_DIM}/exit or Ctrl+D ends{_PLAIN}")
                continue
            if line == "/exit":
                return int(self._has_failed)
            if line:
                self._take(line)

    def _take(self, line: str) -> None:
        command, _, rest = line.partition(" ")
        if command == "/reset":
            self._messages = []
        elif command == "/system":
            self._system, self._messages = rest.strip(), []
        elif command.startswith("/") and command[1:].isalpha():
            print(f"There is no command {command}. There are:\n{COMMANDS}", file=sys.stderr)
        else:
            self._ask(line)

    def _ask(self, question: str) -> None:
        self._messages.append({"role": "user", "content": question})
        answer = _Answer(self._is_terminal)
        try:
            system = [{"role": "system", "content": self._system}] if self._system else []
            for delta in self._client.stream(self._model, [*system, *self._messages], self._options):
                answer.take(delta)
        except ChatError as error:
            self._messages.pop()
            self._has_failed = True
            answer.end_line()
            advice = _BEGIN_ANEW if isinstance(error, LongChatError) and self._messages else ""
            print(f"error: {error}{advice}", file=sys.stderr, flush=True)
            return
        except KeyboardInterrupt:
            answer.was_stopped = True
        answer.finish()
        self._messages.append({"role": "assistant", "content": answer.text})


class _Answer:
    """One answer being shown."""

    def __init__(self, is_terminal: bool) -> None:
        self.text = ""
        self.was_stopped = False
        self._is_terminal = is_terminal
        self._is_dim = False
        self._piece_count = 0
        self._usage: dict[str, Any] | None = None
        self._began_s = time.monotonic()
        self._first_s: float | None = None

    def take(self, delta: ChatDelta) -> None:
        self._usage = delta.usage or self._usage
        if not delta.text and not delta.thought:
            return
        self._piece_count += 1
        if self._first_s is None:
            self._first_s = time.monotonic()
        if delta.thought and self._is_terminal:
            self._show(delta.thought, is_dim=True)
        if delta.text:
            self.text += delta.text
            self._show(delta.text, is_dim=False)

    def finish(self) -> None:
        self.end_line()
        target: TextIO = sys.stdout if self._is_terminal else sys.stderr
        line = self._statistics()
        print(f"{_DIM}{line}{_PLAIN}" if self._is_terminal else line, file=target, flush=True)

    def end_line(self) -> None:
        if self._is_dim:
            self._show("", is_dim=False)
        if self._piece_count or self._is_terminal:
            print(flush=True)

    def _show(self, text: str, is_dim: bool) -> None:
        if is_dim != self._is_dim:
            text = f"{_DIM if is_dim else _PLAIN + chr(10)}{text}"
            self._is_dim = is_dim
        print(text, end="", flush=True)

    def _statistics(self) -> str:
        """Tokens where the server counts them; otherwise the pieces that came, which are no tokens."""
        took_s = max(time.monotonic() - self._began_s, 1e-9)
        stopped = "stopped; " if self.was_stopped else ""
        if self._usage is not None:
            count = self._usage["completion_tokens"]
            counts = f"{self._usage['prompt_tokens']} tokens in, {count} out, {count / took_s:.1f} tokens/s"
        else:
            counts = f"{self._piece_count} pieces, {self._piece_count / took_s:.1f} pieces/s"
        first = "" if self._first_s is None else f", first after {self._first_s - self._began_s:.2f} s"
        return f"[{stopped}{counts}{first}]"


def _readable(text: str) -> str:
    """With a mark for each byte that is no UTF-8, which no request could carry."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _load_line_editing() -> None:
    """Arrow keys and history, where the interpreter has them."""
    try:
        import readline  # noqa: F401
    except ImportError:
        pass
