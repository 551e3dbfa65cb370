"""Hugging Face models, served task by task with the transformers library in worker processes."""
