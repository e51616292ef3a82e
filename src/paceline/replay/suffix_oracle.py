"""Suffix decoding written as the rule reads, slow on purpose: the oracle of `replay.suffix`.

Rules and notation as there. Every count is made by looking at every place of every text.
"""

from collections import Counter
from collections.abc import Iterable

from paceline.replay.suffix import SuffixRule
from paceline.traffic.exchange import TokenStream

__all__ = ["propose_obviously", "replay_obviously"]

Draft = tuple[list[int], float]


def propose_obviously(own: list[int], cached: list[list[int]], rule: SuffixRule) -> list[int]:
    """The draft after `own`, the request's tokens so far; `cached` has the outputs that are kept, the running one last."""
    context = own[-rule.depth :]
    mine, theirs = _best(context, [own], rule), _best(context, cached, rule)
    return theirs[0] if theirs[1] > mine[1] else mine[0]


def _best(context: list[int], texts: list[list[int]], rule: SuffixRule) -> Draft:
    best: Draft = ([], 0.0)
    for m in range(1, min(len(context), rule.depth)):
        pattern = context[-m:]
        if _occurrences(pattern, texts) == 0:
            break
        draft = _likeliest(pattern, texts, min(rule.draft_tokens, int(rule.factor * m + 1e-6)), rule)
        if draft[1] >= best[1]:
            best = draft
    return best


def _occurrences(pattern: list[int], texts: list[list[int]]) -> int:
    n = len(pattern)
    return sum(text[i : i + n] == pattern for text in texts for i in range(len(text) - n + 1))


def _likeliest(pattern: list[int], texts: list[list[int]], most: int, rule: SuffixRule) -> Draft:
    tokens: list[int] = []
    score, probability = 0.0, 1.0
    while len(tokens) < most and len(pattern) + len(tokens) < rule.depth:
        so_far = pattern + tokens
        n = len(so_far)
        after = Counter(text[i + n] for text in texts for i in range(len(text) - n) if text[i : i + n] == so_far)
        if not after:
            break
        token = min(after, key=lambda each: (-after[each], each))
        probability *= after[token] / _occurrences(so_far, texts)
        if probability < rule.least_probability:
            break
        tokens.append(token)
        score += probability
    return tokens, score


def replay_obviously(streams: Iterable[TokenStream], rule: SuffixRule) -> list[tuple[int, int, int, int]]:
    """Steps, drafts, drafted and accepted tokens of each stream, as `suffix.replay_suffix` counts them."""
    cached: list[list[int]] = []
    counted = []
    for stream in streams:
        prompt, output = stream.prompt.tolist(), stream.output.tolist()
        kept = cached[max(0, len(cached) - rule.cached_requests + 1) :] if rule.cached_requests else []
        steps = drafts = drafted = accepted = 0
        given = 1
        while given < len(output):
            texts = [*kept, output[:given]] if rule.cached_requests else []
            draft = propose_obviously(prompt + output[:given], texts, rule)
            remaining = output[given:]
            judged = draft if stream.stopped else draft[: len(remaining)]
            right = max(i for i in range(min(len(judged), len(remaining)) + 1) if judged[:i] == remaining[:i])
            steps, drafts, drafted, accepted = steps + 1, drafts + bool(judged), drafted + len(judged), accepted + right
            given += min(right + 1, len(remaining))
        counted.append((steps, drafts, drafted, accepted))
        cached.append(output)
    return counted
