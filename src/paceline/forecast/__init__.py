"""What drafting would buy: seconds per step, tokens per step, speed-up, break-even, memory."""
