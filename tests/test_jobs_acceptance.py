"""Which acceptance a job goes on with, what it rests on, and that a file gives back what was counted."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import BadInputError, NoEvidenceError, UnknownNameError
from paceline.files.modeldir import weights_fingerprint
from paceline.files.runfile import write_run
from paceline.jobs.acceptance import (
    AskedAcceptance,
    KnownAcceptance,
    choose,
    from_profile,
    from_replay,
    pairing_of,
    read_acceptance,
    stated,
)
from paceline.report.evidence import measured_dict, replayed_dict
from paceline.run import Arm, Evidence
from paceline.speculation.acceptance import Acceptance
from paceline.speculation.counts import AcceptanceCounts
from paceline.speculation.method import Method
from tests.checkpoints import BODY, HEAD, HEAD_BODY, LLAMA, folder
from tests.conftest import Answer
from tests.strategies_runs import run, summaries_only
from tests.test_jobs_scenario import ASKED

DUMPS = Path(__file__).parent / "data" / "dumps"
NOTHING = AskedAcceptance(typed=None, file=None, segment_alphas={})
HALF = Acceptance.from_alpha(0.5, draft_tokens=3)
TYPED = (HALF, "stated: α = 0.5 at K = 3")
REPLAYED = {"chat": AcceptanceCounts(steps=20, drafts=10, drafted_tokens=30, accepted_tokens=12, accepted_per_position=(6, 4, 2))}


def chosen(
    asked: AskedAcceptance,
    *,
    replayed: Mapping[str, AcceptanceCounts] | None = REPLAYED,
    method: Method = Method.NGRAM,
    segments: tuple[str, ...] = ("chat",),
    target: str = "Llama-3.1-8B",
) -> KnownAcceptance:
    """The acceptance at K = 3."""
    return choose(asked, replayed=replayed, method=method, segments=segments, draft_tokens=3, target=target)


def replay_file(path: Path, groups: Mapping[str, Sequence[AcceptanceCounts]], *, schema: str = "paceline.replay/1") -> Path:
    """What `replay --json` prints."""
    body = replayed_dict(groups, confidence=0.95, rng=np.random.default_rng(1))
    path.write_text(json.dumps({"schema": schema, "provenance": {}, "exchanges": 1, **body}), encoding="utf-8")
    return path


def test_what_was_typed_comes_before_a_file_before_a_replay_before_a_profile(tmp_path: Path) -> None:
    """A profile that overrules one's own measurement decides about somebody else's traffic."""
    file = replay_file(tmp_path / "other.json", {"chat": (replace(REPLAYED["chat"], steps=10),)})
    asked = AskedAcceptance(typed=TYPED, file=file, segment_alphas={})
    found = [
        chosen(asked),
        chosen(replace(asked, typed=None)),
        chosen(NOTHING),
        chosen(NOTHING, method=Method.EAGLE3),
        chosen(NOTHING, replayed=None),
    ]
    assert [each.evidence for each in found] == [
        Evidence.STATED,
        Evidence.REPLAYED,
        Evidence.REPLAYED,
        Evidence.PROFILE,
        Evidence.PROFILE,
    ]
    assert [each.label.split(":")[0].split(",")[0] for each in found] == [
        "stated",
        "replayed",
        "replayed",
        "profile eagle3",
        "profile ngram",
    ]
    assert found[1].by_segment["chat"].coverage == 1.0
    assert found[2].by_segment["chat"] == Acceptance(survival=(0.6, 0.4, 0.2), coverage=0.5)


def test_single_segments_overrule_the_rest_and_the_label_says_which() -> None:
    """A stated α that hides behind a profile's label would pass for measured."""
    asked = AskedAcceptance(typed=None, file=None, segment_alphas={"co\x1bde": 0.25})
    found = chosen(asked, method=Method.EAGLE3, segments=("chat", "co\x1bde"))
    assert found.by_segment["co\x1bde"].alpha == pytest.approx(0.25)
    assert found.by_segment["chat"] == from_profile(Method.EAGLE3, ("chat",), draft_tokens=3, target="").by_segment["chat"]
    assert found.evidence is Evidence.STATED
    assert found.label.startswith("stated: α = 0.25 for 'co\\x1bde'; others profile eagle3")
    assert found.label.isprintable()


def test_where_every_segment_is_stated_nothing_else_is_needed() -> None:
    """Suffix drafting has no published profile; whoever states every segment needs none."""
    asked = AskedAcceptance(typed=None, file=None, segment_alphas={"chat": 0.5})
    found = chosen(asked, replayed=None, method=Method.SUFFIX)
    assert found.label == "stated: α = 0.5 for 'chat'"
    assert found.by_segment["chat"].alpha == pytest.approx(0.5)
    with pytest.raises(NoEvidenceError, match="no published profile for method suffix"):
        chosen(asked, replayed=None, method=Method.SUFFIX, segments=("chat", "code"))


def test_a_segment_that_the_traffic_lacks_is_a_typing_error() -> None:
    """An override that applies to nothing would be believed to have applied."""
    with pytest.raises(UnknownNameError, match="'chats'; nearest: chat"):
        chosen(AskedAcceptance(typed=None, file=None, segment_alphas={"chats": 0.5}))


def test_a_replayed_segment_without_a_draft_never_drafts() -> None:
    """No draft is not an acceptance of 0 at full price: it costs nothing either."""
    counts = {"chat": AcceptanceCounts(steps=9, drafts=0, drafted_tokens=0, accepted_tokens=0, accepted_per_position=(0, 0, 0))}
    found = from_replay(counts, ("chat",), method=Method.SUFFIX, draft_tokens=3)
    assert found.by_segment["chat"] == Acceptance(survival=(0.0, 0.0, 0.0), coverage=0.0)
    assert found.label == "replayed: suffix drafts (shorter ones are charged as K long) on this log's own tokens"
    with pytest.raises(NoEvidenceError, match="'code' has no answer in the log"):
        from_replay(counts, ("code",), method=Method.NGRAM, draft_tokens=3)


def test_a_segment_that_a_profile_lacks_takes_its_chat_figure_and_says_so() -> None:
    """Legal documents are not chat, and the reader must know whose figure this is."""
    found = from_profile(Method.EAGLE3, ("code", "le\x1bgal"), draft_tokens=3, target="Llama-3.1-8B")
    chat = from_profile(Method.EAGLE3, ("chat",), draft_tokens=3, target="Llama-3.1-8B")
    assert found.by_segment["le\x1bgal"] == chat.by_segment["chat"] != found.by_segment["code"]
    assert "; 'le\\x1bgal' taken from its chat figure" in found.label
    assert found.label.startswith("profile eagle3, not your traffic: ")
    assert "taken from" not in chat.label


def test_a_profile_without_a_chat_figure_lends_its_first_segment() -> None:
    """The name of what stands in is part of the label, whatever it is."""
    assert "'chat' taken from its math figure" in from_profile(Method.MTP, ("chat",), draft_tokens=1, target="").label


def test_the_profile_is_the_targets_size_and_its_stretch_is_told() -> None:
    """Twelve drafts were never measured with this head."""
    small = from_profile(Method.EAGLE3, ("chat",), draft_tokens=3, target="Llama-3.1-8B")
    large = from_profile(Method.EAGLE3, ("chat",), draft_tokens=3, target="Llama-3.3-70B")
    assert large.label.startswith("profile eagle3-70b, ")
    assert "extrapolated" not in small.label
    stretched = from_profile(Method.EAGLE3, ("chat",), draft_tokens=50, target="Llama-3.1-8B")
    assert "; 'chat' extrapolated beyond K = 7 (3.86 to " in stretched.label
    assert stretched.by_segment["chat"].draft_tokens == 50
    assert small.ranges == {}
    assert small.ranged("chat").low == small.by_segment["chat"]
    tokens = stretched.ranged("chat").tokens_per_step
    assert tokens.low == pytest.approx(3.856)
    assert tokens.value == stretched.by_segment["chat"].tokens_per_step
    assert tokens.high is not None
    assert tokens.high > tokens.value


def test_a_segment_measured_at_fewer_lengths_than_others_is_labelled() -> None:
    """Summarisation was measured at K = 3 only; the longest length of another segment says nothing about it."""
    found = from_profile(Method.EAGLE3, ("chat", "summarisation"), draft_tokens=5, target="Llama-3.1-8B")
    assert "'summarisation' extrapolated beyond K = 3" in found.label
    assert set(found.ranges) == {"summarisation"}


def test_a_blend_weighs_segments_by_what_they_generate() -> None:
    """Half the tokens at E = 2.5 and half at E = 4 take 1 / (.5/2.5 + .5/4) = 3.08 tokens per step."""
    found = KnownAcceptance({"a": HALF, "b": Acceptance.from_alpha(1.0, draft_tokens=3)}, Evidence.STATED, "stated")
    assert found.blended({"a": 0.5, "b": 0.5}).value.tokens_per_step == pytest.approx(1 / (0.5 / 2.5 + 0.5 / 4))
    assert stated(HALF, "stated", ("a", "b")).blended({"a": 1.0, "b": 0.0}).value.tokens_per_step == pytest.approx(2.5)


@st.composite
def requests(draw: st.DrawFn) -> AcceptanceCounts:
    """Counts of one request at K = 4."""
    drafts = draw(st.integers(0, 10**9))
    positions, most = [], drafts
    for _ in range(4):
        most = draw(st.integers(0, most))
        positions.append(most)
    return AcceptanceCounts(
        steps=drafts + draw(st.integers(1, 10**6)),
        drafts=drafts,
        drafted_tokens=4 * drafts,
        accepted_tokens=sum(positions),
        accepted_per_position=tuple(positions),
    )


@settings(max_examples=40)
@given(groups=st.dictionaries(st.sampled_from(["chat", "code", "math"]), st.lists(requests(), min_size=1, max_size=3), min_size=1))
def test_what_replay_printed_gives_the_counts_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, groups: dict[str, list[AcceptanceCounts]]
) -> None:
    """A share rounded on its way through a file shifts every forecast made from it."""
    file = replay_file(tmp_path_factory.mktemp("replay") / "replay.json", groups)
    found = read_acceptance(file, groups, draft_tokens=4, method=Method.EAGLE3)
    for name, each in groups.items():
        pooled = sum(each[1:], start=each[0])
        expected = Acceptance.from_counts(pooled, draft_tokens=4) if pooled.drafts else Acceptance(survival=(0.0,) * 4, coverage=0.0)
        assert found.by_segment[name] == expected


def test_a_run_file_gives_its_counts_back_and_says_what_it_rests_on(tmp_path: Path) -> None:
    """A simulated run that comes back as measured has laundered a guess."""
    made = run(Arm.SPECULATIVE, n=40, step_s=0.01, alphas={"chat": 0.7, "code": 0.5}, evidence=Evidence.SIMULATED)
    write_run(made, tmp_path / "speculative.json")
    found = read_acceptance(tmp_path / "speculative.json", ("chat", "code", "legal"), draft_tokens=3, method=Method.EAGLE3)
    assert made.acceptance_by_segment is not None
    for name in ("chat", "code"):
        assert found.by_segment[name] == Acceptance.from_counts(made.acceptance_by_segment[name], draft_tokens=3)
    assert found.by_segment["legal"] == Acceptance.from_counts(made.acceptance, draft_tokens=3)
    assert found.evidence is Evidence.SIMULATED
    assert found.label == "simulated, from speculative.json; 'legal' taken from its total"


@pytest.mark.parametrize(
    ("schema", "evidence"),
    [
        ("paceline.replay/1", Evidence.REPLAYED),
        ("paceline.measure/1", Evidence.MEASURED),
        ("paceline.simulate/1", Evidence.SIMULATED),
        ("other/1", Evidence.STATED),
    ],
)
def test_a_printed_file_rests_on_what_its_verb_did(tmp_path: Path, schema: str, evidence: Evidence) -> None:
    """Only a server's counters are a measurement."""
    found = read_acceptance(
        replay_file(tmp_path / "a.json", REPLAYED_GROUPS, schema=schema), ("chat",), draft_tokens=3, method=Method.EAGLE3
    )
    assert (found.evidence, found.label) == (evidence, f"{evidence.value}, from a.json")


REPLAYED_GROUPS = {"chat": (REPLAYED["chat"],)}


def test_what_measure_prints_of_a_real_dump_comes_back(tmp_path: Path, paceline: Callable[[Sequence[str]], Answer]) -> None:
    """EAGLE-3 on Llama-3.1-8B: 24,337 steps, all drafted, α = .726."""
    file = tmp_path / "measured.json"
    file.write_text(paceline(["measure", str(DUMPS / "vllm-0.12.0-llama-3.1-8b-eagle3.prom"), "--json"]).out, encoding="utf-8")
    found = read_acceptance(file, ("chat", "code"), draft_tokens=3, method=Method.EAGLE3)
    assert found.label == "measured, from measured.json"
    assert found.by_segment["chat"] == found.by_segment["code"]
    assert found.by_segment["chat"].alpha == pytest.approx(0.726, abs=5e-4)


def test_a_source_without_steps_is_taken_for_drafting_in_every_step(tmp_path: Path) -> None:
    """EAGLE drafts in every step; counters that leave the steps out still say how far its drafts get."""
    counts = AcceptanceCounts(steps=None, drafts=10, drafted_tokens=30, accepted_tokens=12, accepted_per_position=(6, 4, 2))
    body = measured_dict(summaries_only(Arm.SPECULATIVE, step_s=None, counts=counts), confidence=0.95)
    (tmp_path / "m.json").write_text(json.dumps({"schema": "paceline.measure/1", **body}), encoding="utf-8")
    assert read_acceptance(tmp_path / "m.json", ("all",), draft_tokens=3, method=Method.EAGLE3).by_segment["all"] == Acceptance(
        (0.6, 0.4, 0.2), 1.0
    )


def test_totals_without_positions_are_spread_by_one_conditional_acceptance_and_labelled(tmp_path: Path) -> None:
    """llama-server tells each request's totals only; a rollout on it must not end where every other server's goes on.

    14 accepted of 10 drafts: β + β² = 1.4 at K = 2, so β = (√6.6 − 1) / 2; half of the steps drafted.
    """
    totals = AcceptanceCounts(steps=20, drafts=10, drafted_tokens=20, accepted_tokens=14, accepted_per_position=None)
    write_run(summaries_only(Arm.SPECULATIVE, step_s=None, counts=totals), tmp_path / "run.json")
    found = read_acceptance(tmp_path / "run.json", ("all",), draft_tokens=2, method=Method.DRAFT_MODEL)
    beta = (6.6**0.5 - 1) / 2
    assert found.by_segment["all"].survival == pytest.approx((beta, beta**2))
    assert found.by_segment["all"].coverage == 0.5
    assert "positions were not counted" in found.label


def test_acceptance_that_was_not_measured_is_no_evidence(tmp_path: Path) -> None:
    """A plain server's file must end the job with 'not measured' (exit 4), not with 'broken file'."""
    plain = summaries_only(Arm.BASELINE, step_s=0.01, counts=None)
    (tmp_path / "m.json").write_text(json.dumps({"schema": "paceline.measure/1", **measured_dict(plain, confidence=0.95)}), "utf-8")
    write_run(plain, tmp_path / "run.json")
    for name in ("m.json", "run.json"):
        with pytest.raises(NoEvidenceError, match="not measured"):
            read_acceptance(tmp_path / name, ("all",), draft_tokens=3, method=Method.EAGLE3)


GOOD = {"steps": 20, "drafts": 10, "drafted_tokens": 30, "accepted_tokens": 12, "survival": [0.6, 0.4, 0.2]}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[1]",
        "{}",
        "[" * 100_000,
        '{"acceptance": 3}',
        '{"segments": {"chat": null}}',
        *(json.dumps(GOOD | {name: value}) for name in ("steps", "drafts", "accepted_tokens") for value in (-1, 1.5, "10", True)),
        *(json.dumps(GOOD | {"drafts": value}) for value in (None, 10**400)),
        json.dumps(GOOD | {"survival": 5}),
        json.dumps(GOOD | {"survival": [0.6, 0.4, "x"]}),
        json.dumps(GOOD | {"survival": [float("inf"), 0.4, 0.2]}),
        json.dumps(GOOD | {"survival": [float("nan"), 0.4, 0.2]}),
        json.dumps(GOOD | {"survival": [0.2, 0.4, 0.6]}),
    ],
)
def test_a_file_without_counts_is_refused_by_its_name(tmp_path: Path, content: str) -> None:
    """A guess in the place of a broken count would be multiplied by everything."""
    (tmp_path / "broken.json").write_text(content, encoding="utf-8")
    with pytest.raises(BadInputError, match=r"broken\.json"):
        read_acceptance(tmp_path / "broken.json", ("chat",), draft_tokens=3, method=Method.EAGLE3)


def test_the_replay_of_another_method_is_refused(tmp_path: Path) -> None:
    """A head's acceptance under a lookup's cost: drafting that loses would be shipped for a speed-up of another method."""
    replayed = GOOD | {"schema": "paceline.replay/1", "provenance": {"arguments": {"method": "eagle3"}}}
    file = tmp_path / "replay.json"
    file.write_text(json.dumps(replayed), encoding="utf-8")
    assert read_acceptance(file, ("chat",), draft_tokens=3, method=Method.EAGLE3).by_segment["chat"].survival == (0.6, 0.4, 0.2)
    with pytest.raises(BadInputError, match=r"'replay\.json' is acceptance of 'eagle3' drafts, not of ngram"):
        read_acceptance(file, ("chat",), draft_tokens=3, method=Method.NGRAM)
    file.write_text(json.dumps(replayed | {"provenance": ["eagle3"]}), encoding="utf-8")
    assert read_acceptance(file, ("chat",), draft_tokens=3, method=Method.NGRAM).by_segment["chat"].survival == (0.6, 0.4, 0.2)


def test_a_good_file_by_hand_is_read_and_a_missing_or_longer_one_is_not(tmp_path: Path) -> None:
    """Survival may be plain numbers where somebody wrote the file himself."""
    (tmp_path / "own.json").write_text(json.dumps(GOOD), encoding="utf-8")
    assert read_acceptance(tmp_path / "own.json", ("chat",), draft_tokens=3, method=Method.EAGLE3).by_segment["chat"].survival == (
        0.6,
        0.4,
        0.2,
    )
    with pytest.raises(BadInputError, match="more than the draft length 2"):
        read_acceptance(tmp_path / "own.json", ("chat",), draft_tokens=2, method=Method.EAGLE3)
    with pytest.raises(BadInputError, match="none\\.json"):
        read_acceptance(tmp_path / "none.json", ("chat",), draft_tokens=2, method=Method.EAGLE3)


def test_counts_of_shorter_drafts_are_extrapolated_and_unreached_positions_are_not(tmp_path: Path) -> None:
    """Measured at K = 3, asked for K = 5: a fourth draft was never tried. Drafts of 5 of which three positions were reached were."""
    (tmp_path / "three.json").write_text(json.dumps(GOOD), encoding="utf-8")
    found = read_acceptance(tmp_path / "three.json", ("chat",), draft_tokens=5, method=Method.EAGLE3)
    assert found.by_segment["chat"].survival[:3] == (0.6, 0.4, 0.2)
    assert 0 < found.by_segment["chat"].survival[3] < 0.2
    assert "; 'chat' extrapolated beyond K = 3 (" in found.label
    assert found.ranged("chat").low.survival[3] == 0
    (tmp_path / "five.json").write_text(json.dumps(GOOD | {"drafted_tokens": 50}), encoding="utf-8")
    reached = read_acceptance(tmp_path / "five.json", ("chat",), draft_tokens=5, method=Method.EAGLE3)
    assert reached.by_segment["chat"].survival == (0.6, 0.4, 0.2, 0.0, 0.0)
    assert reached.ranges == {}
    nothing = GOOD | {"drafts": 0, "drafted_tokens": 0, "accepted_tokens": 0, "survival": []}
    (tmp_path / "nothing.json").write_text(json.dumps(nothing), encoding="utf-8")
    assert read_acceptance(tmp_path / "nothing.json", ("chat",), draft_tokens=2, method=Method.NGRAM).by_segment["chat"].coverage == 0


def answers(n: int, *, accepted: Sequence[int]) -> list[AcceptanceCounts]:
    """So many answers of ten steps, with 3 drafts in each; `accepted` first drafts in turn, half as many second ones and no third."""
    firsts = [accepted[at % len(accepted)] for at in range(n)]
    return [
        AcceptanceCounts(
            steps=20, drafts=10, drafted_tokens=30, accepted_tokens=each + each // 2, accepted_per_position=(each, each // 2, 0)
        )
        for each in firsts
    ]


def test_the_interval_of_a_replay_is_its_range(tmp_path: Path) -> None:
    """Twenty conversations are no proof of α: what follows from them is as uncertain as they are."""
    groups = {"chat": answers(20, accepted=(2, 6, 8)), "code": answers(5, accepted=(3, 9))}
    file = replay_file(tmp_path / "replay.json", groups)
    told = json.loads(file.read_text(encoding="utf-8"))
    found = read_acceptance(file, ("chat", "code", "legal"), draft_tokens=3, method=Method.EAGLE3)
    chat, own = found.ranged("chat"), told["segments"]["chat"]["survival"]
    assert [(low, high) for low, high in zip(chat.low.survival, chat.high.survival, strict=True)] == [(s["low"], s["high"]) for s in own]
    assert (chat.low.coverage, chat.high.coverage, chat.confidence, chat.n) == (1.0, 1.0, 0.95, 20)
    assert chat.low.alpha < chat.value.alpha < chat.high.alpha
    assert found.ranged("code").is_exact, "five conversations have no interval"
    assert found.ranged("legal").n == 25, "the total's own interval"
    assert found.blended({"chat": 0.5, "code": 0.5}).low.alpha < found.blended({"chat": 0.5, "code": 0.5}).value.alpha
    looked_up = read_acceptance(file, ("chat",), draft_tokens=3, method=Method.NGRAM).ranged("chat")
    coverage = told["segments"]["chat"]["coverage"]
    assert (looked_up.low.coverage, looked_up.high.coverage) == (coverage["low"], coverage["high"])
    longer = read_acceptance(file, ("chat",), draft_tokens=5, method=Method.EAGLE3)
    assert "extrapolated beyond K = 3" in longer.label
    assert longer.ranged("chat").low.survival[:3] == chat.low.survival


def test_an_interval_that_is_no_share_is_refused(tmp_path: Path) -> None:
    """A file by hand in percent."""
    file = replay_file(tmp_path / "replay.json", {"chat": answers(9, accepted=(2, 6))})
    told = json.loads(file.read_text(encoding="utf-8"))
    told["segments"]["chat"]["survival"][0]["high"] = 47.0
    file.write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(BadInputError, match=r"replay\.json.*47\.0"):
        read_acceptance(file, ("chat",), draft_tokens=3, method=Method.EAGLE3)


def test_a_replay_with_this_very_draft_on_this_very_traffic_is_known_as_such(tmp_path: Path) -> None:
    """Whoever replayed the head that they ask about: what was just measured is not doubted. Another head's replay proves nothing."""
    target, head = folder(tmp_path / "target", LLAMA, BODY), folder(tmp_path / "head", HEAD, HEAD_BODY, d2t=[0] * 10)
    inputs = {"orders.jsonl": "5a", "target": weights_fingerprint(target), "head": weights_fingerprint(head)}
    file = replay_file(tmp_path / "replay.json", {"chat": answers(9, accepted=(2, 6))})
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | {"provenance": {"inputs": inputs}}), encoding="utf-8")
    known = read_acceptance(file, ("chat",), draft_tokens=3, method=Method.EAGLE3)
    asked = replace(ASKED, target=str(target), draft=str(head))
    assert pairing_of(known, asked, traffic={}).replayed == known.label
    assert pairing_of(known, asked, traffic={"copy.jsonl": "5a"}).replayed == known.label
    assert pairing_of(known, asked, traffic={"other.jsonl": "6b"}).replayed is None
    assert pairing_of(known, replace(asked, draft=str(target.parent / "none")), traffic={}).replayed is None
    assert pairing_of(known, replace(asked, draft=None), traffic={}).replayed is None
    other = folder(tmp_path / "other", HEAD | {"draft_vocab_size": 9}, HEAD_BODY)
    assert pairing_of(known, replace(asked, draft=str(other)), traffic={}).replayed is None
    pickled = folder(tmp_path / "pickled", HEAD, None)
    (pickled / "pytorch_model.bin").write_bytes(b"")
    assert pairing_of(known, replace(asked, draft=str(pickled)), traffic={}).replayed is None
    assert pairing_of(replace(known, evidence=Evidence.STATED), asked, traffic={}).replayed is None
    profile = from_profile(Method.EAGLE3, ("chat",), draft_tokens=3, target="x")
    assert pairing_of(profile, asked, traffic={}).profile_label == profile.label
