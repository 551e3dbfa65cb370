"""Text to token ids and back: tokenizers, chat templates, and text that comes token by token."""
