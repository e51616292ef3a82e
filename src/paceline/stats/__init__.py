"""How surely: intervals, paired comparisons, sample sizes."""
