"""The Jinja environment in which chat templates run: sandboxed, with what templates on the hub expect to find."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from trireme.llm.tokenizer.port import ChatError, TokenizerError

Render = Callable[[Mapping[str, Any]], str]

_OLDEST_JINJA = (3, 1, 6)
"""Templates are foreign code, and the sandbox of older versions can be left."""


def compile_template(source: str) -> Render:
    """A function that renders the template. Raises TokenizerError where it is no template or Jinja is missing."""
    try:
        jinja2 = importlib.import_module("jinja2")
    except ImportError as error:
        raise TokenizerError("the model's chat template needs the jinja2 package (pip install jinja2)") from error
    if tuple(int(part) for part in re.findall(r"\d+", jinja2.__version__)[:3]) < _OLDEST_JINJA:
        raise TokenizerError(
            f"the model's chat template needs jinja2 3.1.6 or newer, found {jinja2.__version__} (pip install -U jinja2)"
        )
    try:
        template = _environment(jinja2).from_string(source)
    except jinja2.TemplateError as error:
        raise TokenizerError(f"the model's chat template cannot be read: {error}") from error

    def render(values: Mapping[str, Any]) -> str:
        try:
            return str(template.render(**values))
        except jinja2.TemplateError as error:
            raise ChatError(f"the model's chat template refuses the messages: {error}") from error
        except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
            raise ChatError(
                f"the model's chat template fails on the messages: {type(error).__name__}: {error}"
            ) from error

    return render


def _environment(jinja2: Any) -> Any:
    sandbox = importlib.import_module("jinja2.sandbox")
    extensions = importlib.import_module("jinja2.ext")
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_generation_tag(jinja2, extensions), extensions.loopcontrols]
    )
    environment.filters["tojson"] = _to_json

    def raise_exception(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = _now
    return environment


def _generation_tag(jinja2: Any, extensions: Any) -> Any:
    """`{% generation %}` marks what the model wrote, for training; here its content is rendered as it is."""

    class GenerationTag(extensions.Extension):  # type: ignore[misc]
        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_content"), [], [], body).set_lineno(line)

        def _content(self, caller: Callable[[], str]) -> str:
            return caller()

    return GenerationTag


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes what HTML would take for markup; models are to see plain JSON."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _now(form: str) -> str:
    return datetime.now().strftime(form)
