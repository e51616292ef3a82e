"""The reference implementation of speculative decoding in torch: verification, drafters, generation, and the training of an EAGLE-3 head.

Needs the extra `engine`; nothing else in paceline imports torch. Weights are safetensors only, and no model's own code is run.
"""
