"""Models of Triton's vLLM backend: `model.json` and its tensors, on `trireme.llm` or on vLLM itself."""
