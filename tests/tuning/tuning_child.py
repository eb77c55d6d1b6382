"""A tuner in a process of its own, to be killed at any moment: ``tuning_child WORK_DIR TRIALS``.

Prints the origin and the key of every candidate whose record is on disk.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable


def main() -> None:
    sys.modules["torch"] = None  # type: ignore[assignment]  # starts two seconds sooner
    import foretune
    from foretune.measure import Measurement
    from foretune.records import Journal, Record
    from foretune.space import Candidate
    from tests.tuning.support import HARDWARE, FormulaMeasurer, matmul, ok

    extend = Journal.extend

    def acknowledged(journal: Journal, records: Iterable[Record]) -> None:
        written = list(records)
        extend(journal, written)
        for record in written:
            print(record.origin, record.candidate_key, flush=True)

    def slowly(candidate: Candidate) -> Measurement:
        time.sleep(0.002)
        return ok(candidate)

    Journal.extend = acknowledged  # type: ignore[method-assign]
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
