"""ONNX models, run by ONNX Runtime in worker processes."""
