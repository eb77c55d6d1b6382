"""Starts writers: for each line ``path name count`` read, forks a process that appends records.

A writer appends ``count`` records (0: until it is killed) of workload ``name`` and prints each
index once the record is on disk. Around that, ``start PID`` and ``end`` are printed. Forking spares
fifty starts of the interpreter.
"""

from __future__ import annotations

import itertools
import os
import sys


def main() -> None:
    """Serves requests until standard input ends."""
    # Records need no TVM tensors; without torch this process starts at once.
    sys.modules["torch"] = None  # type: ignore[assignment]
    from foretune.records import Journal
    from tests.records.support import record

    print("ready", flush=True)
    for line in sys.stdin:
        path, name, count = line.split()
        pid = os.fork()
        if pid == 0:
            journal = Journal(path)
            for index in range(int(count)) if int(count) else itertools.count():
                journal.append(record(index, workload=name))
                # One write each: a kill never leaves half of a line in the pipe.
                os.write(1, f"{index}\n".encode())
            os._exit(0)
        os.write(1, f"start {pid}\n".encode())
        os.waitpid(pid, 0)
        os.write(1, b"end\n")


if __name__ == "__main__":
    main()
