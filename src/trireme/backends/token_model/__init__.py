"""Models that take and give token ids, by the tensors of TensorRT-LLM and FasterTransformer, on `trireme.llm`."""
