"""The tensors and rules of TensorRT-LLM's models, on `trireme.llm`."""
