"""vLLM's dialect: what each version can do, how speculation is switched on, and what its metrics mean."""
