"""What a run's provenance says of what it was given."""

from paceline.jobs.labels import without_folders


def test_a_command_in_a_provenance_has_no_folder_of_this_machine() -> None:
    """Whoever passes a report on: target and draft are named alike, and where somebody keeps them is nobody's business."""
    config = '{"method": "eagle3", "model": "/home/me/heads/orders", "num_speculative_tokens": 3}'
    words = ["vllm", "serve", "/models/target", "--speculative-config", config, "--out=/home/me/out", f"--speculative-config={config}"]
    named = '{"method": "eagle3", "model": "orders", "num_speculative_tokens": 3}'
    assert without_folders(words) == [
        *("vllm", "serve", "target", "--speculative-config", named),
        *("--out=out", f"--speculative-config={named}"),
    ]


def test_what_has_no_folder_in_it_stays_as_it_was_typed() -> None:
    """A command that is written anew would not be the one that was run."""
    words = ['{"model":  "org/name"}', "{no object", "heads/orders", "--rate=2"]
    assert without_folders(words) == words
