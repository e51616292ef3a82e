"""llama.cpp's llama-server: its /metrics."""
