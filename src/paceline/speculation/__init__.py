"""How tokens are drafted, what became of them, and every ratio made of that.

At least five different ratios are called "acceptance rate" in the field, so counts are kept and ratios are derived:

    α        acceptance rate          accepted tokens / drafted tokens, pooled
    s_i      survival                 share of drafted steps whose first i drafts were all accepted
    β_i      conditional acceptance   s_i / s_(i−1), with s_0 = 1
    τ        acceptance length        1 + accepted tokens / drafted steps
    coverage                          drafted steps / steps
    E        tokens per step          1 + accepted tokens / steps  =  1 + coverage · (τ − 1)

A *step* is one decode forward of the target for one request; the forward that ends prefill is none. On a chain with full drafts of K
tokens τ = 1 + Σ s_i = 1 + K·α exactly, whatever the distribution; (1 − β^(K+1)) / (1 − β) is the special case of independent, identical
acceptance β (Leviathan et al., arXiv 2211.17192, equation 1).

`method` says how tokens are drafted, `counts` holds what was observed, `acceptance` what a model is told, `blend` mixes segments.
"""
