"""``foretune tune``."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shlex
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune._files import write_json
from foretune._store_url import without_password
from foretune.cli._files import check_files, files_named, same_place
from foretune.cli._options import (
    INTERRUPTED,
    add_cluster,
    add_command,
    add_devices,
    add_hardware,
    add_input,
    add_remote,
    devices_asked_for,
    llm_identity,
    open_llm,
    open_store,
    parse_options,
    parse_passes,
    parse_shapes,
    parse_until,
    probe_hardware,
    read_plan,
    require_cluster,
    require_seed,
    require_temporary_files,
)
from foretune.cli._stores import NONE, add_store
from foretune.errors import BadInputError, WrongResultError

if TYPE_CHECKING:
    from foretune._arrays import Array
    from foretune.graph import Artifact
    from foretune.hardware import Devices, Hardware
    from foretune.measure.gate import Verdict
    from foretune.records import Store
    from foretune.tuning import TuneResult
    from foretune.workload import Model, Workload


_LONGEST_NAME = 40
"""Characters of a language model's name in that of a directory, where its identity tells it."""


def add_tune(commands: Any) -> None:
    """Adds the command to the parser."""
    tune = add_command(commands, "tune", _tune, "tune a model or a workload")
    add_input(tune)
    add_hardware(tune)
    add_devices(tune)
    add_remote(tune)
    add_cluster(tune, "programs are built there, and timed here or on --device")
    tune.add_argument(
        "--strategy", default="default", metavar="S", help="see `foretune strategies`"
    )
    tune.add_argument(
        "--cost-model", default="default", metavar="C", help="see `foretune cost-models`"
    )
    tune.add_argument(
        "--proposer",
        metavar="P",
        help="who proposes edits, where the strategy makes any; see `foretune strategies`",
    )
    tune.add_argument(
        "--llm",
        metavar="MODEL@URL",
        help="language model for the proposer `llm`, or for the cost model behaviour:scores=llm: a "
        "server, settings (.json), a transcript (.jsonl) or a folder; see docs/llm.md",
    )
    tune.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the strategy or its proposer; may be repeated",
    )
    tune.add_argument(
        "--pass",
        dest="passes",
        action="append",
        default=[],
        metavar="NAME=on|off",
        help="switches a pass of the compiler; may be repeated",
    )
    tune.add_argument(
        "--plan",
        type=Path,
        metavar="FILE.json",
        help="what passes choose for operators: a result of this command, or its network.plan",
    )
    tune.add_argument(
        "--plan-trials",
        type=int,
        default=0,
        metavar="N",
        help="plans of a network to measure before it is tuned; 0: its default plan (default 0)",
    )
    tune.add_argument(
        "--plan-model",
        type=Path,
        metavar="FILE.npz",
        help="proposes these plans: what `foretune graph train` wrote (default: what comes with "
        "foretune)",
    )
    budget = tune.add_mutually_exclusive_group()
    budget.add_argument(
        "--trials", type=int, metavar="N", help="candidates to measure, over all tasks"
    )
    budget.add_argument(
        "--time", type=float, metavar="SECONDS", help="wall seconds to spend tuning"
    )
    tune.add_argument(
        "--patience",
        type=int,
        default=256,
        metavar="N",
        help="a task stops early after N trials without an improvement of 1 %% (default 256)",
    )
    tune.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help="candidates measured between two looks at what was learned (default: fitted to the "
        "budget, 4 to 16)",
    )
    tune.add_argument("--seed", type=int, default=0, metavar="N", help="seeds everything random")
    tune.add_argument(
        "--work-dir", type=Path, metavar="DIR", help="journal and result; resumed if present"
    )
    tune.add_argument(
        "--learn-from",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="work directory of an earlier run, perhaps of another model, whose measurements are "
        "used; may be repeated",
    )
    add_store(tune)
    tune.add_argument(
        "--fresh", action="store_true", help="set aside what DIR holds and start anew"
    )
    tune.add_argument("-o", "--output", type=Path, metavar="ARTIFACT.so", help="compiled artifact")
    tune.add_argument("--json", type=Path, metavar="FILE", help="result as foretune.tune/1")


def _tune(args: argparse.Namespace) -> int:
    # Everything that can be refused is refused before anything is measured, or even loaded.
    strategy, cost_model = _refuse_settings(args)
    options = _strategy_options(args, strategy, cost_model)
    with contextlib.ExitStack() as stack:
        store = open_store(args.store)
        if store is not None:
            stack.callback(store.close)
        return _run(args, strategy, cost_model, options, store)


def _run(
    args: argparse.Namespace,
    strategy: str,
    cost_model: str,
    options: dict[str, Any],
    store: Store | None,
) -> int:
    from foretune.report import TuneProgress, print_summary
    from foretune.tuning import default_work_dir, tune
    from foretune.workload import Workload, load_input

    progress = TuneProgress()
    llm = None if args.llm is None else open_llm(args.llm)
    without, plan = parse_passes(args.passes), read_plan(args.plan)
    devices = devices_asked_for(args)
    hardware = probe_hardware(args)
    until = parse_until(args.until)
    source = load_input(args.input, shapes=parse_shapes(args.shape), until=until)
    _refuse_source(source, saved=args.output is not None)
    chosen = [f"{name}={value}" for name, value in sorted(options.items())]
    chosen += sorted(args.shape or ())
    chosen += [f"until={','.join(until)}"] if until else []
    chosen += [f"without={','.join(without)}"] if args.passes else []
    chosen += [] if plan is None else [f"plan={zlib.crc32(json.dumps(plan).encode()):08x}"]
    chosen += [f"plans={args.plan_trials}"] if args.plan_trials else []
    chosen += [] if args.plan_model is None else [f"planner={_file_mark(args.plan_model)}"]
    chosen += [] if devices is None else [f"devices={_mark(devices)}"]
    chosen += [] if args.batch is None else [f"batch={args.batch}"]
    chosen += [f"learned={place.name}-{_place_mark(place)}" for place in args.learn_from]
    chosen += [] if llm is None else [llm.name[:_LONGEST_NAME], llm_identity(args.llm)]
    work_dir = args.work_dir or default_work_dir(
        args.input, hardware, strategy, cost_model, args.seed, *chosen
    )
    _check_files(args, work_dir)
    with contextlib.ExitStack() as stack:
        if llm is not None:
            stack.callback(llm.close)
        result = tune(
            source,
            target=args.target,
            threads=args.threads,
            strategy=strategy,
            cost_model=cost_model,
            trials=args.trials,
            time_s=args.time,
            patience=args.patience,
            batch=args.batch,
            seed=args.seed,
            work_dir=work_dir,
            fresh=args.fresh,
            progress=progress,
            options=options,
            llm=llm,
            command=_reproducing(args),
            output=None if isinstance(source, Workload) else args.output,
            without=without,
            plan=plan,
            plan_trials=args.plan_trials,
            plan_model=args.plan_model,
            devices=devices,
            learn_from=args.learn_from,
            store=store,
            remote=args.remote,
            cluster=args.cluster,
        )
    data = {**result.to_json(), "input": args.input}
    if args.json is not None:
        write_json(args.json, data)
    print_summary(data)
    fields, wrong = _artifact(result, args.output)
    if args.json is not None:
        write_json(args.json, data | fields)
    if wrong:
        raise WrongResultError(wrong)
    print(f"work directory: {work_dir}  (report: foretune report {shlex.quote(str(work_dir))})")
    return INTERRUPTED if result.interrupted else 0


def _file_mark(file: Path) -> str:
    """What tells a file from others in the name of a directory."""
    return f"{zlib.crc32(file.read_bytes()):08x}"


def _place_mark(folder: Path) -> str:
    """What tells a folder from others of its name in the name of a directory."""
    return hashlib.blake2b(os.path.abspath(folder).encode(), digest_size=3).hexdigest()


def _mark(devices: Devices) -> str:
    """What tells a file of devices from others in the name of a directory."""
    entries = {key: device.to_json() for key, device in devices.items()}
    return f"{zlib.crc32(json.dumps(entries, sort_keys=True).encode()):08x}"


def _strategy_options(args: argparse.Namespace, strategy: str, cost_model: str) -> dict[str, Any]:
    """Options of the strategy and its proposer; ``--llm`` alone means the proposer ``llm``."""
    from foretune.cost import asks_llm
    from foretune.tuning import strategy_options

    options = parse_options(args.option)
    if args.proposer is not None:
        if options.get("proposer", args.proposer) != args.proposer:
            raise BadInputError(
                f"there is one proposer, but got --proposer {args.proposer} and --option "
                f"proposer={options['proposer']}: leave one of them out"
            )
        options["proposer"] = args.proposer
    scored = asks_llm(cost_model)
    return strategy_options(strategy, options, has_llm=args.llm is not None, scored=scored)


def _refuse_settings(args: argparse.Namespace) -> tuple[str, str]:
    """Checks what was asked for and fills in the budget; returns strategy and cost model."""
    from foretune.tuning import Budget, PlanSearch, check_batch, resolve_names

    if args.trials is None and args.time is None:
        args.trials = 1000
    Budget(trials=args.trials, seconds=args.time, patience=args.patience)
    check_batch(args.batch)
    strategy, cost_model = resolve_names(args.strategy, args.cost_model)
    require_seed(args.seed)
    require_cluster(args)
    if args.output is not None and args.output.suffix != ".so":
        raise BadInputError(
            f"an artifact is a .so file, but got -o {args.output}: name it artifact.so"
        )
    _check_files(args, args.work_dir)
    PlanSearch.asked_for(args.plan_trials, args.plan_model, read_plan(args.plan))
    require_temporary_files()
    # Which compiler links for devices elsewhere depends on what they are.
    if args.output is not None and not args.remote:
        from foretune.graph import require_compiler

        require_compiler()
    return strategy, cost_model


def _check_files(args: argparse.Namespace, work_dir: Path | None) -> None:
    """No two outputs are one file, and none is an input.

    But the result may be asked for in the work directory, under the name it has there anyway, and
    so may a transcript that is replayed be the run's own.
    """
    from foretune.graph import artifact_files, require_free
    from foretune.tuning import JOURNAL, RESULT, TRANSCRIPT

    inputs = files_named(args.input)
    settings = files_named(args.llm, args.strategy, args.cost_model, *args.option)
    own = []
    if work_dir is not None:
        shared = {RESULT: [args.json] if args.json else [], TRANSCRIPT: settings, JOURNAL: []}
        own = [
            work_dir / name
            for name, others in shared.items()
            if not any(same_place(work_dir / name, other) for other in others)
        ]
    check_files(
        {
            "-o": None if args.output is None else artifact_files(args.output),
            "--json": args.json,
        },
        {
            "INPUT": inputs,
            "--plan": args.plan,
            "--plan-model": args.plan_model,
            "--devices": args.devices,
            "an option's file": settings,
        },
        {
            "a file of --work-dir": own,
            "--store": Path(args.store) if _is_file(args.store) else None,
        },
    )
    if args.output is not None:
        require_free(args.output)


def _is_file(store: str | None) -> bool:
    """Whether a store that was named is a file, or is to be one."""
    from foretune.records import is_url

    if store is None or store == NONE or is_url(store):
        return False
    return not Path(store).is_dir()


def _refuse_source(source: Model | Workload, saved: bool) -> None:
    """Refuses what could not be checked, or not saved, once it was tuned."""
    from foretune.graph import arguments_of
    from foretune.measure.gate import Signature
    from foretune.workload import Workload

    if isinstance(source, Workload):
        Signature.of(source)
        if saved:
            arguments_of(source)
    elif saved:
        source.require_reference()


def _reproducing(args: argparse.Namespace) -> str:
    """The command line that does the same anew; as it was given, it would resume its own run.

    Without the user's own store, which knows this very run by then. Before → after:
    ``foretune tune net.onnx`` → ``foretune tune --fresh --store none --seed 0 net.onnx``.
    """
    added = [] if args.fresh else ["--fresh"]
    added += [] if args.store is not None else ["--store", NONE]
    if not any(word.startswith("--se") for word in args.given):
        added += ["--seed", str(args.seed)]
    # Behind the command and not at the end, where a lone `--` would make them inputs.
    place = args.given.index("tune") + 1
    words = [*args.given[:place], *added, *args.given[place:]]
    return shlex.join(["foretune", *map(without_password, words)])


def _artifact(result: TuneResult, path: Path | None) -> tuple[dict[str, Any], str]:
    """What became of the artifact: fields for the JSON object, and what is wrong, if anything."""
    from foretune.tuning.network import NOTHING

    network = result.network
    if network is None:
        measured = any(task.best_s is not None for task in result.tasks)
        return _save_kernel(result, path) if path is not None and measured else ({}, "")
    fields: dict[str, Any] = {
        "verified": bool(network.inputs) and not network.wrong,
        "max_abs_error": network.max_abs_error,
    }
    if network.shipped == NOTHING:
        there = path is not None and path.exists()
        left = f"{path} is of another run and was left" if there else f"{path} was removed"
        return fields, network.fault + ("" if path is None else f". {left}")
    if path is not None and result.kept is not None:
        print(f"artifact: {path}  (of another run: the same network, tuned)")
        compared = (result.kept.get("verification") or {}).get("inputs")
        fields = {"verified": bool(compared), "max_abs_error": None, "artifact": str(path)}
    elif path is not None:
        told = _told(network.max_abs_error)
        print(f"artifact: {path}  (largest difference to the original {told})")
        fields["artifact"] = str(path)
    if not network.wrong:
        return fields, ""
    kept = f"{path} holds the default schedules, which are right" if path is not None else ""
    return fields, f"the tuned network is wrong: {network.fault}; please report this. {kept}"


def _save_kernel(result: TuneResult, path: Path) -> tuple[dict[str, Any], str]:
    """Compiles a kernel, checks it against the untuned program, and saves it if it is right."""
    from foretune.workload import Workload

    assert isinstance(result.source, Workload)
    artifact = result.compile()
    if result.hardware.place:
        artifact.save(path)
        print(f"artifact: {path}  (for {result.hardware.name}; each kernel was checked there)")
        return {"verified": False, "max_abs_error": None, "artifact": str(path)}, ""
    verdict = _judge_kernel(artifact, result.source, result.hardware)
    fields = {"verified": verdict.right, "max_abs_error": verdict.max_error}
    if not verdict.right:
        return fields, (
            f"the compiled program differs from the untuned one: {verdict.message}, more than "
            f"rounding explains: {path} was not written; please report this"
        )
    artifact.save(path)
    told = _told(verdict.max_error)
    print(f"artifact: {path}  (largest difference to the untuned program {told})")
    return {**fields, "artifact": str(path)}, ""


def _told(difference: float | None) -> str:
    return "not known" if difference is None else f"{difference:.2g}"


def _judge_kernel(artifact: Artifact, workload: Workload, hardware: Hardware) -> Verdict:
    """Compares a kernel's artifact with the untuned program, on inputs that candidates get."""
    from foretune import _tvm
    from foretune.graph import arguments_of
    from foretune.measure.gate import Signature, judge, make_inputs

    signature, arguments = Signature.of(workload), arguments_of(workload)
    tensor = _tvm.tvm.runtime.tensor
    target = hardware.tvm_target() if hardware.has_cores else _tvm.Target("llvm")
    program = _tvm.tvm.compile(workload.module, target).jit()["main"]

    def run_untuned(positive: bool) -> list[Array]:
        buffers = [tensor(array) for array in make_inputs(signature, workload.key, positive)]
        program(*buffers)
        return [buffer.numpy() for buffer in buffers]

    expected = run_untuned(positive=False)
    if _count_infinite(expected):
        # Where small integers make no sense (a logarithm of zero), positive numbers may.
        expected = min(expected, run_untuned(positive=True), key=_count_infinite)
    actual = list(expected)
    outputs = artifact.run([expected[at] for at in arguments.inputs])
    for at, output in zip(arguments.outputs, outputs, strict=True):
        actual[at] = output
    return judge(signature, actual, expected)


def _count_infinite(arrays: Sequence[Array]) -> int:
    import numpy as np

    return sum(int(np.count_nonzero(~np.isfinite(a))) for a in arrays if a.dtype.kind == "f")
