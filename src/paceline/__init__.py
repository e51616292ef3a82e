"""Speculative decoding: what it would buy, what it buys, whether to ship it, and how to take it back.

The nouns are here; the verbs live in the packages (`paceline.forecast`, `paceline.simulate`, `paceline.replay`, `paceline.decide`).
"""

from paceline.errors import BadInputError, NoEvidenceError, PacelineError, ServerFaultError, UnknownNameError
from paceline.hardware import DraftShape, Gpu, ModelShape
from paceline.latency import RequestTiming
from paceline.plan import Guard, Plan, Stage
from paceline.run import Provenance, RequestRecord, Run, Summary
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method, Speculation
from paceline.verdict import Claim, Estimate, Finding, Verdict
from paceline.workload import Request, Workload

__version__ = "0.1.0"

__all__ = [
    "Acceptance",
    "AcceptanceCounts",
    "BadInputError",
    "Claim",
    "DraftShape",
    "Estimate",
    "Finding",
    "Gpu",
    "Guard",
    "Method",
    "ModelShape",
    "NoEvidenceError",
    "PacelineError",
    "Plan",
    "Provenance",
    "Request",
    "RequestRecord",
    "RequestTiming",
    "Run",
    "ServerFaultError",
    "Speculation",
    "Stage",
    "Summary",
    "UnknownNameError",
    "Verdict",
    "Workload",
]
