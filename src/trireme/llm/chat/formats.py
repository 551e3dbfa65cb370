"""The formats of reasoning and of tool calls by their names, and which of them a chat template tells its model of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trireme.llm.chat import deepseek, hermes, llama, mistral, tools, xml_calls, xml_rules
from trireme.llm.chat.pythonic import PythonicParser
from trireme.llm.chat.reasoning import ReasoningTags
from trireme.llm.chat.tool_parser import ToolParser, new_call_id

AUTO = "auto"
NONE = "none"


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """How models of a family call tools."""

    parser: type[ToolParser]
    rules: tools.Rules
    tags: tuple[str, ...] = ()
    """Which the text has to show, even where they are special tokens."""
    hints: tuple[str, ...] = ()
    """Texts that are all in the templates of such models."""
    absent: tuple[str, ...] = ()
    """Texts that are not."""
    new_id: Callable[[], str] = new_call_id
    names: tools.NameRule | None = None
    """What tools may be called; None: any name can be written."""

    def fits(self, template: str) -> bool:
        """Whether a chat template speaks of this format."""
        has_hints = bool(self.hints) and all(hint in template for hint in self.hints)
        return has_hints and not any(word in template for word in self.absent)


_DEEPSEEK_TAGS = (
    deepseek.ALL_OPENING,
    deepseek.ALL_CLOSING,
    deepseek.OPENING,
    deepseek.CLOSING,
    deepseek.SEPARATOR,
)
_GLM_TAGS = (
    xml_calls.GLM.opening,
    xml_calls.GLM.closing,
    xml_calls.GLM.key,
    xml_calls.GLM_KEY_CLOSING,
    xml_calls.GLM_VALUE,
    xml_calls.GLM.value_closing,
)
_MISTRAL_TAGS = (mistral.OPENING, mistral.ARGUMENTS, "[CALL_ID]")

TOOL_FORMATS = {
    "hermes": ToolFormat(
        hermes.HermesParser,
        tools.hermes_rules,
        (hermes.OPENING, hermes.CLOSING),
        (hermes.OPENING, hermes.CLOSING),
        ("<function=", "<arg_key>"),  # other formats between the same tags
    ),
    "mistral": ToolFormat(
        mistral.MistralParser,
        tools.mistral_rules,
        _MISTRAL_TAGS,
        (mistral.OPENING,),
        (mistral.ARGUMENTS,),
        mistral.mistral_call_id,
    ),
    "mistral_args": ToolFormat(
        mistral.MistralParser,
        tools.later_mistral_rules,
        _MISTRAL_TAGS,
        (mistral.OPENING, mistral.ARGUMENTS),
        new_id=mistral.mistral_call_id,
        names=tools.BEFORE_JSON,
    ),
    "deepseek": ToolFormat(
        deepseek.DeepSeekParser,
        tools.deepseek_rules,
        _DEEPSEEK_TAGS,
        (deepseek.SEPARATOR, "```json"),
        names=tools.BEFORE_JSON,
    ),
    "deepseek_v31": ToolFormat(
        deepseek.DeepSeekParser,
        tools.later_deepseek_rules,
        _DEEPSEEK_TAGS,
        (deepseek.SEPARATOR,),
        ("```json",),
        names=tools.BEFORE_JSON,
    ),
    "qwen3_coder": ToolFormat(
        xml_calls.XmlParser,
        xml_rules.xml_rules(xml_calls.QWEN),
        (xml_calls.QWEN.opening, xml_calls.QWEN.closing),
        (xml_calls.QWEN.opening, xml_calls.QWEN.call, xml_calls.QWEN.key),
        names=tools.IN_TAG,
    ),
    "seed_oss": ToolFormat(
        xml_calls.SeedParser,
        xml_rules.xml_rules(xml_calls.SEED),
        (xml_calls.SEED.opening, xml_calls.SEED.closing),
        (xml_calls.SEED.opening, xml_calls.SEED.call),
        names=tools.IN_TAG,
    ),
    "minimax": ToolFormat(
        xml_calls.MiniMaxParser,
        xml_rules.xml_rules(xml_calls.MINIMAX),
        (xml_calls.MINIMAX.opening, xml_calls.MINIMAX.closing),
        (xml_calls.MINIMAX.opening, xml_calls.MINIMAX.call.rstrip('"')),
        names=tools.IN_TAG,
    ),
    "glm": ToolFormat(
        xml_calls.GlmParser,
        xml_rules.glm_rules,
        _GLM_TAGS,
        (xml_calls.GLM.opening, xml_calls.GLM.key),
        names=tools.OF_GLM,
    ),
    "deepseek_v32": ToolFormat(
        xml_calls.DsmlParser, xml_rules.xml_rules(xml_calls.DSML, says_type=True), names=tools.IN_TAG
    ),
    "pythonic": ToolFormat(
        PythonicParser,
        tools.pythonic_rules,
        ("<|python_start|>", "<|python_end|>"),
        ("[func_name1(params_name1=",),
        names=tools.OF_PYTHON,
    ),
    "llama": ToolFormat(
        llama.LlamaParser, tools.llama_rules, (llama.TAG,), ('"parameters"',), ("[func_name1(", hermes.OPENING)
    ),
}
"""In the order in which they are tried."""
_LLAMA_HINTS = (llama.TAG, '{"name": function name, "parameters"', "<|start_header_id|>")

REASONING_TAGS = {
    "think": ReasoningTags("<think>", "</think>"),
    "mistral": ReasoningTags("[THINK]", "[/THINK]"),
}


def name_of(tool_format: ToolFormat) -> str:
    """As the parameter `tool_parser` has it."""
    return next((name for name, entry in TOOL_FORMATS.items() if entry is tool_format), AUTO)


def find_tool_format(wanted: str, template: str) -> ToolFormat | None:
    """The format of a name, or for `auto` the one that the template speaks of; None where there is none."""
    if wanted != AUTO:
        return TOOL_FORMATS.get(wanted)
    for name, entry in TOOL_FORMATS.items():
        if entry.fits(template) and (name != "llama" or any(hint in template for hint in _LLAMA_HINTS)):
            return entry
    return None


def find_reasoning(wanted: str, template: str) -> ReasoningTags | None:
    """The same for the tags around reasoning."""
    if wanted != AUTO:
        return REASONING_TAGS.get(wanted)
    return next((tags for tags in REASONING_TAGS.values() if tags.closing in template), None)
