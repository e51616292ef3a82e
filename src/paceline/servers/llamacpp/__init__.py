"""llama.cpp's llama-server: its /metrics and its log."""
