"""TensorRT-LLM: what its options look like."""
