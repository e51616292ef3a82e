"""How late our stamps are: client stamp − the server's send stamp, at many streams, in lock-step and staggered.

    python benchmarks/time_stamps.py [--streams 256] [--steps 250] [--step-s 0.04] [--json]

The server is a process of its own and stamps each message just before it writes it, so the error holds the write, the way through the
kernel, and the wait until our client gets to the packet. In lock-step all streams emit on the same tick and queue behind one another. The
server's own lateness (send stamp − when the message was due) is not the client's and is printed apart.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def measured(given: argparse.Namespace, *, lock_step: bool) -> dict[str, Any]:
    """What the client reports of its stamps."""
    options = ["--step-s", str(given.step_s), *(["--lock-step"] if lock_step else [])]
    with subprocess.Popen([sys.executable, str(HERE / "paced_server.py"), *options], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().strip()
            client = [sys.executable, str(HERE / "paced_client.py"), url, "--streams", str(given.streams), "--steps", str(given.steps)]
            return dict(json.loads(subprocess.run(client, capture_output=True, text=True, check=True).stdout))
        finally:
            server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--step-s", type=float, default=0.04)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures: dict[str, Any] = {"load_average": os.getloadavg()[0], "cores": os.cpu_count()}
    figures |= {name: measured(given, lock_step=name == "lock_step") for name in ("lock_step", "staggered")}
    if given.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
