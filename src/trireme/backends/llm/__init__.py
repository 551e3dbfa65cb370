"""The llm backend: a language model from a Hugging Face folder, run by `trireme.llm` in a worker process."""
