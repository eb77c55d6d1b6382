"""An artifact in a server: threads, forks and CPU masks, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from foretune.errors import BadInputError
from foretune.graph import Artifact, compile_workload
from foretune.workload import catalog

CORES = sorted(os.sched_getaffinity(0))
THREADS = len(CORES)
several = pytest.mark.skipif(THREADS < 2, reason="a pool of workers needs two cores")

PRELUDE = """
import os, signal, sys, threading, time
import numpy as np
from foretune.graph import Artifact

signal.alarm(150)
pairs = [
    [np.random.default_rng(seed + n).standard_normal((96, 96), "float32") for n in (0, 100)]
    for seed in range(6)
]
# Not `@`, whose library starts threads of its own.
wanted = [np.einsum("ij,jk->ik", *pair) for pair in pairs]

def check(artifact, n):
    np.testing.assert_allclose(artifact.run(pairs[n])[0], wanted[n], rtol=1e-3, atol=1e-3)

def masks():
    return [sorted(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")]

def forked(serve):
    '''Status of a child that serves.'''
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        serve()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def in_threads(work, count=6):
    failures = []
    def guarded(n):
        try:
            work(n)
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
"""


@pytest.fixture(scope="module")
def library(hardware, tmp_path_factory):
    """A product of matrices on every core."""
    artifact = compile_workload(catalog.get("matmul:96x96x96"), hardware)
    return artifact.save(tmp_path_factory.mktemp("server") / "product.so")


def _in_a_process(library, code, mask=None, **environment):
    """What the code printed; its artifact is ``artifact``."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TVM_")}
    script = f"{PRELUDE}\nartifact = Artifact.load({str(library)!r})\n{textwrap.dedent(code)}"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=inherited | environment,
        preexec_fn=None if mask is None else lambda: os.sched_setaffinity(0, mask),
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


def test_one_artifact_serves_many_threads(library):
    code = """
    def work(n):
        for _ in range(50):
            check(artifact, n)
    in_threads(work)
    """
    _in_a_process(library, code)


@pytest.mark.slow
def test_every_thread_may_have_an_artifact_of_its_own(library):
    code = f"""
    def work(n):
        own = Artifact.load({str(library)!r})
        for _ in range(20):
            check(own, n)
    in_threads(work)
    """
    _in_a_process(library, code)


@pytest.mark.slow
def test_threads_that_end_take_their_workers_along(library):
    code = """
    check(artifact, 0)
    before = len(masks())
    in_threads(lambda n: check(artifact, n), 2)
    for _ in range(400):
        if len(masks()) == before:
            break
        time.sleep(0.05)
    assert len(masks()) == before, (len(masks()), before)
    """
    _in_a_process(library, code)


@pytest.mark.parametrize(
    ("before", "way_out"),
    [
        pytest.param("nothing", "sys.exit(5)", marks=pytest.mark.slow),
        pytest.param("a run", "os._exit(5)", marks=pytest.mark.slow),
        ("a run and a pause", "sys.exit(5)"),
        pytest.param("runs in threads", "sys.exit(5)", marks=pytest.mark.slow),
    ],
)
def test_children_forked_at_any_time_run_and_end(library, before, way_out):
    """A pause is what sends TVM's workers to sleep, and a sleeping one is never joined."""
    steps = {
        "nothing": "",
        "a run": "check(artifact, 0)",
        "a run and a pause": "check(artifact, 0); time.sleep(0.7)",
        "runs in threads": "in_threads(lambda n: check(artifact, n), 2)",
    }
    code = f"""
    {steps[before]}
    def serve():
        for n in range(6):
            check(artifact, n)
        in_threads(lambda n: check(artifact, n), 1)
        {way_out}
    assert [forked(serve), forked(lambda: sys.exit(6))] == [5, 6]
    check(artifact, 1)
    """
    _in_a_process(library, code)


@pytest.mark.slow
def test_a_fork_while_other_threads_run_leaves_all_of_them_right(library):
    code = """
    check(artifact, 0)
    ended = threading.Event()
    def work(n):
        while not ended.is_set():
            check(artifact, n)
    def forks(n):
        if n:
            return work(n)
        def serve():
            check(artifact, 0)
            os._exit(5)
        try:
            assert [forked(serve) for _ in range(5)] == [5] * 5
        finally:
            ended.set()
    in_threads(forks, 3)
    """
    _in_a_process(library, code)


@several
@pytest.mark.parametrize("mask", [CORES[-1:], pytest.param(CORES[:2], marks=pytest.mark.slow)])
def test_running_keeps_the_cpu_mask(library, mask):
    code = """
    check(artifact, 0)
    in_threads(lambda n: check(artifact, n), 2)
    print(artifact.threads, masks() == [sorted(os.sched_getaffinity(0))] * len(masks()))
    print(*sorted(os.sched_getaffinity(0)))
    """
    printed = _in_a_process(library, code, mask=mask)
    assert printed == [str(len(mask)), "True", *map(str, mask)]


@several
def test_threads_are_chosen_when_loading(library):
    code = f"""
    one = Artifact.load({str(library)!r}, threads=1)
    import tvm
    threads = tvm.get_global_func("runtime.NumThreads")
    for each in (artifact, one, artifact, one):
        check(each, 0)
        print(each.threads, threads())
    before = dict(os.environ)
    def alone(n):
        check(one, n)
        assert threads() == 1
    in_threads(alone, 1)
    assert dict(os.environ) == before and not [k for k in before if k.startswith("TVM_")]
    """
    numbers = [str(THREADS)] * 2 + ["1"] * 2
    assert _in_a_process(library, code) == numbers * 2


@several
def test_a_pool_that_is_too_small_is_said_and_right(library):
    code = f"""
    import warnings
    check(Artifact.load({str(library)!r}, threads=1), 0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        check(artifact, 1)
    assert "already runs with 1 threads" in str(seen[0].message), seen
    """
    _in_a_process(library, code)


@pytest.mark.parametrize("threads", [0, -1, THREADS + 1])
def test_threads_that_the_mask_does_not_hold_are_refused(library, threads):
    with pytest.raises(BadInputError, match=rf"`1 <= threads <= {THREADS}` must hold"):
        Artifact.load(library, threads=threads)


def test_an_artifact_compiled_for_more_threads_runs_on_those_there_are(library):
    pair = [np.eye(96, dtype="float32")] * 2
    artifact = Artifact.load(library)
    assert artifact.threads == THREADS
    np.testing.assert_array_equal(artifact.run(pair)[0], pair[0])


_LOCKS = """
import os, threading, time
from foretune.graph._threads import ForkedLock

lock, held, release = ForkedLock(), threading.Event(), threading.Event()


def hold():
    with lock:
        held.set()
        release.wait()


threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child:
    release.set()
    raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

# Threads of a fresh child come to the lock at once, and each is slow to find out where it is.
getpid, inside, most = os.getpid, [], []
os.getpid = lambda: (time.sleep(0.05), getpid())[1]


def enter():
    with lock:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.02)
        inside.pop()


threads = [threading.Thread(target=enter) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(20)
os._exit(0 if most == [1, 1, 1, 1] else 1)
"""


def test_threads_of_a_forked_child_share_a_lock_that_is_free() -> None:
    done = subprocess.run([sys.executable, "-c", _LOCKS], timeout=60, check=False)
    assert done.returncode == 0
