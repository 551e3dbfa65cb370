"""A language-model engine with in-flight batching, usable alone: `from trireme.llm import Engine`."""
