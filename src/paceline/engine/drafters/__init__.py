"""What proposes tokens: lookups in the text so far, a smaller model, and heads that read the target's hidden states."""
