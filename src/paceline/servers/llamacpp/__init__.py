"""llama.cpp's llama-server."""
