"""Verdicts, latencies and plans as text: aligned columns for a terminal, Markdown for a file.

What comes from logs and configurations (segment names, commands) is escaped: it may not steer a terminal, nor break out of Markdown.
"""

from collections.abc import Iterator, Sequence

from paceline.errors import ascii_controls
from paceline.plan import Guard, Plan, Stage
from paceline.report.figures import (
    break_even,
    decision_reason,
    decision_words,
    holds_beyond_bound,
    holds_words,
    interval,
    milliseconds,
    times,
)
from paceline.report.latencies import LatencyRow
from paceline.verdict import Routing, Verdict

__all__ = ["columns", "latency_table", "markdown_text", "plan_markdown", "verdict_text"]

ESCAPES = {"<": "&lt;"} | {each: "\\" + each for each in "\\|*_[]"}
PAYS = {True: "pays", False: "harms", None: "cannot tell"}
LATENCY_HEAD = ("latency", "plain p50", "p99", "with drafts p50", "p99", "p99 ratio")


def columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in aligned columns, the first to the left and the others to the right, with a rule under the head."""
    lines = [[ascii_controls(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[i]) for row in lines) for i in range(len(head))]
    padded = ["  ".join(cell.ljust(widths[i]) if i == 0 else cell.rjust(widths[i]) for i, cell in enumerate(row)).rstrip() for row in lines]
    return "\n".join([padded[0], "  ".join("-" * each for each in widths), *padded[1:]])


def verdict_text(verdict: Verdict) -> str:
    """The decision, its reason, every claim with its interval, and the warnings."""
    rows = [(str(each.claim), interval(each.estimate), holds_words(each.holds)) for each in verdict.findings]
    figures = f"acceptance {interval(verdict.alpha)}, break-even {break_even(verdict.break_even_alpha)}"
    if verdict.break_even_tokens_per_step is not None:
        figures += f"\ntokens per step {interval(verdict.tokens_per_step)}, break-even {interval(verdict.break_even_tokens_per_step)}"
    parts = [f"{decision_words(verdict.decision)}: {ascii_controls(decision_reason(verdict))}"]
    if rows:
        parts.append(columns(("claim", "value", "answer"), rows))
    parts += [f"{each.claim}: {ascii_controls(each.why)}" for each in verdict.findings if holds_beyond_bound(each)]
    parts += [figures, *_routing(verdict.routing)]
    if verdict.requests_needed is not None:
        parts.append(f"about {verdict.requests_needed} requests per arm in all would settle what cannot be told")
    parts += [f"warning [{each.code}]: {ascii_controls(each.message)}" for each in verdict.warnings]
    return "\n\n".join(parts) + "\n"


def _routing(routing: Routing | None) -> Iterator[str]:
    """Which segments pay, and what sending only those to drafts is worth."""
    if routing is None:
        return
    rows = [(each.name, f"{each.share:.0%}", interval(each.speedup), interval(each.slower), PAYS[each.pays]) for each in routing.segments]
    yield columns(("segment", "requests", "speed-up", "slower requests", "drafting"), rows)
    yield "\n".join(_routed(routing))


def _routed(routing: Routing) -> Iterator[str]:
    yield f"drafts for all: speed-up {interval(routing.all_on)}, {interval(routing.harmed_all_on)} of requests slower"
    if not routing.routed:
        yield "no segment gains: drafts for none"
    elif len(routing.routed) == len(routing.segments):
        yield "every segment gains: routing adds nothing"
    else:
        sent = ascii_controls(", ".join(routing.routed))
        yield f"drafts for {sent} only: speed-up {interval(routing.with_routing)}, {interval(routing.harmed_routed)} of requests slower"


def latency_table(rows: Sequence[LatencyRow]) -> str:
    """Both arms' latencies, one line each (`report.latencies.latency_rows`)."""
    cells = [
        (
            each.name,
            milliseconds(each.baseline.p50 if each.baseline else None),
            milliseconds(each.baseline.p99 if each.baseline else None),
            milliseconds(each.speculative.p50 if each.speculative else None),
            milliseconds(each.speculative.p99 if each.speculative else None),
            times(each.p99_ratio),
        )
        for each in rows
    ]
    return columns(LATENCY_HEAD, cells) + "\n"


def plan_markdown(plan: Plan, verdicts: tuple[Verdict, ...]) -> str:
    """The plan as Markdown: the verdicts it follows from, why it is opt-in, how it is measured, its stages, guards and way back."""
    parts = [
        f"# {markdown_text(plan.title)}",
        markdown_text(plan.opt_in),
        *(_rests_on(verdicts) if verdicts else ()),
        *(_verdicts(verdicts) if verdicts else ()),
        "## How it is measured",
        "\n".join(f"- **{markdown_text(name)}**: {markdown_text(text)}" for name, text in plan.measurement.items()),
        "## Stages",
        *(part for i, each in enumerate(plan.stages, 1) for part in _stage(i, each)),
        "## Guards while traffic is exposed",
        _md_table(("metric", "breached when", "for"), [_guard(each) for each in plan.guards]),
        "## On a breach",
        "\n".join(f"{i}. {markdown_text(each)}" for i, each in enumerate(plan.on_breach, 1)),
    ]
    return "\n\n".join(parts) + "\n"


def _rests_on(verdicts: tuple[Verdict, ...]) -> Iterator[str]:
    """What a reader must know of the evidence, each warning once, in order of appearance."""
    told = {(each.code, each.message): None for verdict in verdicts for each in verdict.warnings}
    if told:
        yield "## What this rests on"
        yield "\n".join(f"- {markdown_text(message)}" for _, message in told)


def _verdicts(verdicts: tuple[Verdict, ...]) -> Iterator[str]:
    yield "## Verdict"
    rows = [
        (
            "unknown" if each.concurrency is None else str(each.concurrency),
            decision_words(each.decision),
            interval(each.alpha),
            break_even(each.break_even_alpha),
            decision_reason(each),
        )
        for each in verdicts
    ]
    yield _md_table(("in flight", "decision", "acceptance", "break-even", "because"), rows)
    if len(verdicts) > 1:
        yield "The largest concurrency stands for production and decides."


def _stage(number: int, stage: Stage) -> Iterator[str]:
    yield f"### {number}. {markdown_text(stage.name)} ({stage.traffic_share:.3%} of traffic)".replace(".000%", "%")
    facts = []
    if stage.min_duration_s:
        facts.append(f"at least {stage.min_duration_s / 60:.0f} min")
    if stage.min_requests:
        facts.append(f"at least {stage.min_requests} requests per arm")
    purpose = stage.purpose[:1].upper() + stage.purpose[1:]
    yield markdown_text(purpose + (f"; {', '.join(facts)}." if facts else "."))
    yield "Do:\n\n" + "\n".join(f"- {_code_or_text(each)}" for each in stage.do)
    yield "Passes when:\n\n" + "\n".join(f"- [ ] {markdown_text(each)}" for each in stage.passes_when)


def _code_or_text(act: str) -> str:
    """A command as code, words as words."""
    command = act.split(" ", 1)[0] in ("paceline", "vllm", "python", "python3", "llama-server", "trtllm-serve", "docker", "kubectl")
    clean = ascii_controls(act)
    fence = "`" * (1 + max((len(run) for run in _backtick_runs(clean)), default=0))
    return f"{fence}{clean}{fence}" if command else markdown_text(act)


def _backtick_runs(text: str) -> Iterator[str]:
    return (run for run in "".join(each if each == "`" else " " for each in text).split())


def _guard(guard: Guard) -> tuple[str, str, str]:
    bound = f"above {guard.at_most:.4g}" if guard.at_most is not None else f"below {guard.at_least:.4g}"
    felt = f", where the rise is {guard.felt_s:g} s or more" if guard.felt_s is not None else ""
    return guard.metric, bound + felt, f"{guard.breach_after_s:.0f} s"


def _md_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([markdown_text(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def markdown_text(text: str) -> str:
    """Text that means itself in Markdown, also in a table's cell. Backticks stay: our own sentences quote commands with them."""
    clean = ascii_controls(text)
    return "".join(ESCAPES.get(each, each) for each in clean)
