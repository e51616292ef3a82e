"""SGLang: what its options look like."""
