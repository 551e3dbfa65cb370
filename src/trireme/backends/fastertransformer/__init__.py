"""The tensors and rules of FasterTransformer's models, on `trireme.llm`."""
