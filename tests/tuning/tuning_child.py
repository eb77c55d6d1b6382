"""A tuner in a process of its own, to be killed at any moment: ``tuning_child WORK_DIR TRIALS``.

Prints the origin and the key of every candidate whose record ``append`` returned for.
"""

from __future__ import annotations

import sys
import time


def main() -> None:
    sys.modules["torch"] = None  # type: ignore[assignment]  # starts two seconds sooner
    import foretune
    from foretune.measure import Measurement
    from foretune.records import Journal, Record
    from foretune.space import Candidate
    from tests.tuning.support import HARDWARE, FormulaMeasurer, matmul, ok

    append = Journal.append

    def acknowledged(journal: Journal, record: Record) -> None:
        append(journal, record)
        print(record.origin, record.candidate_key, flush=True)

    def slowly(candidate: Candidate) -> Measurement:
        time.sleep(0.002)
        return ok(candidate)

    Journal.append = acknowledged  # type: ignore[method-assign]
    foretune.tune(
        matmul(),
        target=HARDWARE,
        strategy="random",
        cost_model="random",
        trials=int(sys.argv[2]),
        patience=100_000,
        batch=4,
        work_dir=sys.argv[1],
        measurer=FormulaMeasurer(slowly),
    )


if __name__ == "__main__":
    main()
