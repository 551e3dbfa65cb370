"""OpenVINO's own models and ONNX models, run by OpenVINO in worker processes."""
