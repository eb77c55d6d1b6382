"""The contract of a store of records, as checks over a factory.

A factory is called without arguments and opens one and the same place every time; the place is
empty when a check begins.
"""

from __future__ import annotations

import math
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from foretune.errors import RecordError
from foretune.hardware import Hardware
from foretune.measure import Measurement, Status
from foretune.records import Journal, Record, Store, add_missing, merge
from foretune.workload import Workload

StoreFactory = Callable[[], Store]

_THREADS, _EACH = 4, 10
_WORKLOAD = Workload(name="naïve mm", key="0" * 16, module_json='{"a": "b"}', flops=1e6, weight=3)
_HARDWARE = Hardware("cpu", '{"kind": "llvm"}', threads=2, peak_gflops=230.0)


def _record(index: int, workload: str = "w", hardware: str = "h", ok: bool = True) -> Record:
    """A record, of a failure if not ``ok``; all its text has what encodings stumble over."""
    seconds = (1e-3 * (index + 1), 2e-3) if ok else ()
    return Record(
        workload=workload,
        hardware=hardware,
        candidate_key=f"c{index}",
        decisions={"sketch": "s", "decisions": [[1, 2, 4], index]},
        measurement=Measurement(
            Status.OK if ok else Status.WRONG_OUTPUT,
            seconds,
            (True,) * len(seconds),
            message="" if ok else "not\x00equal: \ud800 ü \U0001f600 '; --",
            max_error=0.0 if ok else math.inf,
        ),
        origin="random",
        time=1e9 + index / 3,
        environment={"tvm": "0.27", "policy": {"passes_off": ["a"]}, "elapsed_s": index / 7},
    )


def check_empty(factory: StoreFactory) -> None:
    """A place that was never used holds nothing, and writing nothing changes nothing."""
    with factory() as store:
        store.write([])
        assert store.name, "messages need to say where the store is"
        assert (store.records(), store.workloads(), store.hardware()) == ([], {}, {})
        assert store.best("w", "h") is None


def check_written_is_read(factory: StoreFactory) -> None:
    """What was written comes back equal, in order, here and where it is opened again."""
    records = [_record(0), _record(1, ok=False), _record(2, workload="v")]
    with factory() as store:
        store.write([_WORKLOAD, _HARDWARE, *records[:1]])
        store.extend(records[1:])
        assert store.records() == records
    with factory() as again:
        assert again.records() == records, "records changed on their way"
        assert again.workloads() == {_WORKLOAD.key: _WORKLOAD}
        assert again.hardware() == {_HARDWARE.key: _HARDWARE}
        assert not again.skipped


def check_filters(factory: StoreFactory) -> None:
    """Records are found by workload, hardware and status, and the best of a pair among them."""
    records = [
        _record(0, workload="a"),
        _record(1, workload="b"),
        _record(2, workload="a", hardware="g"),
        _record(3, workload="a", ok=False),
        _record(4, workload="a"),
    ]
    with factory() as store:
        store.write([*records, _WORKLOAD])
        assert store.records(workload="a") == [records[0], *records[2:]]
        assert store.records(hardware="g") == [records[2]]
        assert store.records("a", "h") == [records[0], records[3], records[4]]
        assert store.records("a", "h", ok_only=True) == [records[0], records[4]]
        assert store.records("nobody", "h") == []
        assert store.best("a", "h") == records[0]
        assert store.workloads([]) == {} == store.workloads(["nobody"])
        assert list(store.workloads([_WORKLOAD.key, "nobody"])) == [_WORKLOAD.key]


def check_all_or_nothing(factory: StoreFactory) -> None:
    """One entry that cannot be written keeps all others of its call out, and no later call."""
    unfit = replace(_record(1), environment={"x": object()})
    with factory() as store:
        try:
            store.write([_WORKLOAD, _record(0), unfit])
        except TypeError:
            pass
        else:
            raise AssertionError("what is no JSON was written")
        store.append(_record(2))
        assert store.records() == [_record(2)]
    with factory() as again:
        assert (again.records(), again.workloads()) == ([_record(2)], {})


def check_descriptions(factory: StoreFactory) -> None:
    """A workload is kept as it was first written, a hardware as it was last."""
    faster = replace(_HARDWARE, peak_gflops=231.0)
    with factory() as store:
        store.write([_HARDWARE, _WORKLOAD])
        store.add_workload(replace(_WORKLOAD, name="renamed"))
        store.add_hardware(faster)
        assert store.workloads() == {_WORKLOAD.key: _WORKLOAD}
        assert store.hardware() == {_HARDWARE.key: faster}
    with factory() as again:
        assert again.workloads() == {_WORKLOAD.key: _WORKLOAD}
        assert again.hardware() == {_HARDWARE.key: faster}


def check_copies(factory: StoreFactory) -> None:
    """A record that is there already is not missing."""
    with factory() as store:
        store.extend([_record(0), _record(1)])
        assert add_missing(store, [_record(1), _record(0)]) == 0
        assert add_missing(store, [_record(2), _record(1)]) == 1
        store.append(_record(2))
        kept = [record.identity for record in store.records()]
        assert list(dict.fromkeys(kept)) == [_record(i).identity for i in range(3)]


def check_others_are_seen(factory: StoreFactory) -> None:
    """Two that are open at once see each other's entries."""
    with factory() as one, factory() as two:
        one.append(_record(0))
        two.refresh()
        two.write([_record(1), _WORKLOAD])
        one.refresh()
        assert one.records() == two.records() == [_record(0), _record(1)]
        assert one.workloads() == {_WORKLOAD.key: _WORKLOAD}


def check_threads(factory: StoreFactory) -> None:
    """Threads that write at once lose nothing and keep the order of each."""
    with factory() as store:

        def write(name: str) -> None:
            for index in range(_EACH):
                store.append(_record(index, workload=name))

        names = [f"t{number}" for number in range(_THREADS)]
        threads = [threading.Thread(target=write, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name in names:
            expected = [_record(i, workload=name) for i in range(_EACH)]
            assert store.records(workload=name) == expected


def check_exchange(factory: StoreFactory) -> None:
    """What a journal holds can be merged in, and what a store holds into a journal, each once."""
    with tempfile.TemporaryDirectory() as folder, factory() as store:
        with Journal(Path(folder) / "from.jsonl") as source:
            source.write([_WORKLOAD, _HARDWARE, _record(0), _record(1, ok=False)])
            assert [merge(store, source), merge(store, source)] == [2, 0]
            expected = source.records()
        with Journal(Path(folder) / "to.jsonl") as target:
            assert [merge(target, store), merge(target, store)] == [2, 0]
            assert target.records() == expected == store.records()
            assert target.workloads() == {_WORKLOAD.key: _WORKLOAD}
            assert target.hardware() == {_HARDWARE.key: _HARDWARE}


def check_close(factory: StoreFactory) -> None:
    """``close`` may be called twice; nothing can be written from then on, and that is said."""
    store = factory()
    store.close()
    store.close()
    try:
        store.append(_record(0))
    except RecordError as error:
        assert store.name in str(error), "the message must say which store"
    else:
        raise AssertionError("a closed store took a record")
    with factory() as again:
        assert again.records() == []


CHECKS: tuple[Callable[[StoreFactory], None], ...] = (
    check_empty,
    check_written_is_read,
    check_filters,
    check_all_or_nothing,
    check_descriptions,
    check_copies,
    check_others_are_seen,
    check_threads,
    check_exchange,
    check_close,
)


def check_store(make: Callable[[], StoreFactory]) -> None:
    """Runs every check of the suite. Raises AssertionError at the first promise broken.

    Args:
        make: Gives a factory of an empty place, another one each time.
    """
    for check in CHECKS:
        check(make())
