"""SGLang: what its options look like, and its /metrics."""
