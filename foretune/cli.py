"""The command line. Exit codes and JSON objects follow ``docs/formats.md``.

Every command is a function that takes the parsed arguments and returns an exit code. Heavy rooms
are imported inside the commands, so that ``foretune --help`` is instant.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from foretune import __version__
from foretune._files import no_temporary_files, write_json
from foretune.engines import ENGINES
from foretune.errors import BadInputError, ForetuneError, NothingMeasuredError, WrongResultError

if TYPE_CHECKING:
    from foretune.graph import Artifact
    from foretune.hardware import Hardware
    from foretune.measure.gate import Verdict
    from foretune.tuning import TuneResult
    from foretune.workload import Model, Workload
    from foretune.workload.model import Array

INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line and exits with 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"foretune: {message} (see `{self.prog} --help`)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    args = _parser().parse_args(given, argparse.Namespace(given=given))
    logging.basicConfig(
        level=logging.INFO if args.verbose else logging.WARNING,
        format="foretune: %(levelname)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        return int(args.command(args))
    except ForetuneError as error:
        print(f"foretune: {_one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("foretune: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (`| head`): not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _one_line(message: str) -> str:
    return " ".join(message.split())


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="foretune", description="Makes tensor programs fast on the hardware at hand."
    )
    parser.add_argument("--version", action="version", version=f"foretune {__version__}")
    parser.add_argument("--verbose", action="store_true", help="log what happens")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    _add_tune(commands)
    _add_bench(commands)
    _add_compare(commands)
    _add_report(commands)
    _add_probe(commands)
    _command(commands, "workloads", _workloads, "list the catalog")
    _command(commands, "strategies", _strategies, "list the strategies")
    _command(commands, "cost-models", _cost_models, "list the cost models")
    _add_db(commands)
    return parser


def _add_tune(commands: Any) -> None:
    tune = _command(commands, "tune", _tune, "tune a model or a workload")
    _add_input(tune)
    _add_hardware(tune)
    tune.add_argument(
        "--strategy", default="default", metavar="S", help="see `foretune strategies`"
    )
    tune.add_argument(
        "--cost-model", default="default", metavar="C", help="see `foretune cost-models`"
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
    tune.add_argument("--seed", type=int, default=0, metavar="N", help="seeds everything random")
    tune.add_argument(
        "--work-dir", type=Path, metavar="DIR", help="journal and result; resumed if present"
    )
    tune.add_argument(
        "--fresh", action="store_true", help="set aside what DIR holds and start anew"
    )
    tune.add_argument("-o", "--output", type=Path, metavar="ARTIFACT.so", help="compiled artifact")
    tune.add_argument("--json", type=Path, metavar="FILE", help="result as foretune.tune/1")


def _add_bench(commands: Any) -> None:
    bench = _command(commands, "bench", _bench, "compare strategies on workloads")
    bench.add_argument(
        "--workloads", required=True, metavar="W[,W...]", help="INPUTs, comma-separated"
    )
    bench.add_argument(
        "--strategies",
        required=True,
        metavar="S[,S...]",
        help="strategies; `metaschedule` is TVM's tuner",
    )
    bench.add_argument(
        "--cost-models",
        default="default",
        metavar="C[,C...]",
        help="cost models to cross with the strategies",
    )
    bench.add_argument("--trials", type=int, required=True, metavar="N", help="trials of each run")
    bench.add_argument("--seeds", type=int, default=1, metavar="K", help="runs with seeds 0 to K-1")
    bench.add_argument(
        "--json",
        type=Path,
        required=True,
        metavar="FILE",
        help="result as foretune.bench/1; an unfinished one is resumed",
    )
    _add_hardware(bench)


def _add_compare(commands: Any) -> None:
    compare = _command(commands, "compare", _compare, "compare an artifact with other engines")
    _add_input(compare)
    compare.add_argument(
        "--artifact", type=Path, required=True, metavar="A.so", help="what `tune -o` wrote"
    )
    compare.add_argument(
        "--against", default="eager", metavar="E[,E...]", help=f"of {', '.join(ENGINES)}"
    )
    compare.add_argument("--json", type=Path, metavar="FILE", help="result as foretune.compare/1")
    compare.add_argument("--rounds", type=int, default=15, metavar="N", help="interleaved rounds")
    _add_hardware(compare)


def _add_report(commands: Any) -> None:
    report = _command(commands, "report", _report, "write the HTML page of a work directory")
    report.add_argument("work_dir", type=Path, metavar="WORK_DIR")
    report.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="default: WORK_DIR/report.html"
    )


def _add_probe(commands: Any) -> None:
    hardware = _command(
        commands, "hardware", _hardware, "what was probed, and the TVM target chosen"
    )
    _add_hardware(hardware)
    hardware.add_argument("--json", type=Path, metavar="FILE", help="the same as JSON")


def _command(commands: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=run)
    return parser


def _add_input(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "input", metavar="INPUT", help="catalog name, file.onnx, file.pt2 or file.py:function"
    )
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=D,D,...",
        help="fixes the shape of an input of a model with dynamic shapes; may be repeated",
    )


def _add_hardware(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", metavar="T", help="preset or TVM target; default: this machine")
    parser.add_argument(
        "--threads", type=int, metavar="N", help="default: all cores of the affinity mask"
    )


def _add_db(commands: Any) -> None:
    db = commands.add_parser("db", help="look into, export, import and merge journals")
    actions = db.add_subparsers(required=True, metavar="ACTION", parser_class=_Parser)
    info = _command(actions, "info", _db_info, "what a journal holds")
    info.add_argument("journal", type=Path, metavar="JOURNAL", help="a journal or a work directory")
    best = _command(actions, "best", _db_best, "the best record of each workload")
    best.add_argument("journal", type=Path, metavar="JOURNAL")
    best.add_argument("--json", type=Path, metavar="FILE")
    export = _command(actions, "export", _db_export, "write a MetaSchedule JSON database")
    export.add_argument("journal", type=Path, metavar="JOURNAL")
    export.add_argument("directory", type=Path, metavar="DIRECTORY")
    export.add_argument(
        "--top", type=int, default=0, metavar="K", help="only the best K of each workload"
    )
    export.add_argument(
        "--hardware", metavar="KEY", help="needed where the journal holds several, see `db info`"
    )
    load = _command(actions, "import", _db_import, "read a MetaSchedule JSON database")
    load.add_argument("directory", type=Path, metavar="DIRECTORY")
    load.add_argument("journal", type=Path, metavar="JOURNAL")
    _add_hardware(load)
    merge = _command(actions, "merge", _db_merge, "append what other journals hold")
    merge.add_argument("journal", type=Path, metavar="JOURNAL", help="appended to")
    merge.add_argument("others", type=Path, nargs="+", metavar="OTHER")


def _tune(args: argparse.Namespace) -> int:
    from foretune.report import TuneProgress, print_summary
    from foretune.tuning import default_work_dir, tune
    from foretune.workload import load_input

    # Everything that can be refused is refused before anything is measured.
    strategy, cost_model = _refuse_settings(args)
    _probe(args)
    source = load_input(args.input, shapes=_shapes(args.shape))
    _refuse_source(source, saved=args.output is not None)
    hardware = _probe(args, measure=True)
    work_dir = args.work_dir or default_work_dir(
        args.input, hardware, strategy, cost_model, args.seed
    )
    result = tune(
        source,
        target=hardware,
        strategy=strategy,
        cost_model=cost_model,
        trials=args.trials,
        time_s=args.time,
        patience=args.patience,
        seed=args.seed,
        work_dir=work_dir,
        fresh=args.fresh,
        progress=TuneProgress(),
        command=_reproducing(args),
    )
    data = {**result.to_json(), "input": args.input}
    if args.json is not None:
        write_json(args.json, data)
    print_summary(data)
    if args.output is not None and any(task.best_s is not None for task in result.tasks):
        fields, difference = _write_artifact(result, args.output)
        if args.json is not None:
            write_json(args.json, data | fields)
        if difference:
            raise WrongResultError(
                f"{difference}, more than rounding explains: {args.output} was not written; "
                "please report this"
            )
    print(f"work directory: {work_dir}  (report: foretune report {shlex.quote(str(work_dir))})")
    return INTERRUPTED if result.interrupted else 0


def _refuse_settings(args: argparse.Namespace) -> tuple[str, str]:
    """Checks what was asked for and fills in the budget; returns strategy and cost model."""
    from foretune.tuning import Budget, resolve_names

    if args.trials is None and args.time is None:
        args.trials = 1000
    Budget(trials=args.trials, seconds=args.time, patience=args.patience)
    strategy, cost_model = resolve_names(args.strategy, args.cost_model)
    if args.seed < 0:
        raise BadInputError(f"`seed >= 0` must hold, but got --seed {args.seed}")
    for path in (args.output, args.json):
        _check_writable(path)
    _require_temporary_files()
    if args.output is not None:
        from foretune.graph import require_compiler

        if args.output.suffix != ".so":
            raise BadInputError(
                f"an artifact is a .so file, but got -o {args.output}: name it artifact.so"
            )
        require_compiler()
    return strategy, cost_model


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

    Before → after: ``foretune tune net.onnx`` → ``foretune tune --fresh --seed 0 net.onnx``.
    """
    added = [] if args.fresh else ["--fresh"]
    if not any(word.startswith("--se") for word in args.given):
        added += ["--seed", str(args.seed)]
    # Behind the command and not at the end, where a lone `--` would make them inputs.
    place = args.given.index("tune") + 1
    return shlex.join(["foretune", *args.given[:place], *added, *args.given[place:]])


def _write_artifact(result: TuneResult, path: Path) -> tuple[dict[str, Any], str]:
    """Compiles, checks against what was tuned, and saves if it is right.

    Returns:
        Fields for the JSON object, and what is wrong with the artifact: empty if it was saved.
    """
    from foretune.graph import verify
    from foretune.workload import Workload

    artifact = result.compile()
    if isinstance(result.source, Workload):
        verdict = _judge_kernel(artifact, result.source, result.hardware)
        right, error, original = verdict.right, verdict.max_error, "the untuned program"
        difference = f"the compiled program differs from the untuned one: {verdict.message}"
    else:
        check = verify(artifact, result.source)
        right, error, original = check.ok, check.max_abs_error, "the original"
        difference = f"the compiled model differs from the original by {error}"
    fields = {"verified": right, "max_abs_error": error}
    if not right:
        return fields, difference
    artifact.save(path)
    print(f"artifact: {path}  (largest difference to {original} {error:.2g})")
    return {**fields, "artifact": str(path)}, ""


def _judge_kernel(artifact: Artifact, workload: Workload, hardware: Hardware) -> Verdict:
    """Compares a kernel's artifact with the untuned program, on inputs that candidates get."""
    from foretune import _tvm
    from foretune.graph import arguments_of
    from foretune.measure.gate import Signature, judge, make_inputs

    signature, arguments = Signature.of(workload), arguments_of(workload)
    tensor = _tvm.tvm.runtime.tensor
    target = hardware.tvm_target() if hardware.kind == "llvm" else _tvm.Target("llvm")
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


def _bench(args: argparse.Namespace) -> int:
    from foretune.bench import print_bench, run_bench

    _check_writable(args.json)
    _require_temporary_files()
    if args.trials < 1 or args.seeds < 1:
        raise BadInputError(
            f"`trials >= 1` and `seeds >= 1` must hold, but got {args.trials} and {args.seeds}"
        )
    data = run_bench(
        _names(args.workloads),
        _names(args.strategies),
        trials=args.trials,
        seeds=args.seeds,
        cost_models=_names(args.cost_models),
        hardware=_probe(args, measure=True),
        path=args.json,
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print_bench(data)
    return 0


def _compare(args: argparse.Namespace) -> int:
    from foretune.engines import compare
    from foretune.graph import Artifact
    from foretune.report import print_comparison
    from foretune.workload import Model, load_input

    _check_writable(args.json)
    source = load_input(args.input, shapes=_shapes(args.shape))
    if not isinstance(source, Model):
        raise BadInputError(
            f"{args.input} is a single workload, and other engines run models: "
            "compare a model, or use `foretune bench` for a workload"
        )
    hardware = _probe(args)
    Artifact.load(args.artifact)  # says what is wrong with it before other engines start
    results = compare(
        source,
        args.artifact,
        _names(args.against),
        threads=hardware.threads,
        rounds=args.rounds,
        progress=lambda line: print(line, file=sys.stderr),
    )
    data = {
        "schema": "foretune.compare/1",
        "input": args.input,
        "hardware": hardware.to_json(),
        "latency_s": {name: result.to_json() for name, result in results.items()},
        "max_abs_error": {name: result.max_abs_error for name, result in results.items()},
    }
    if args.json is not None:
        write_json(args.json, data)
    print_comparison(data)
    own = results["foretune"]
    if own.median is None:
        raise NothingMeasuredError(f"the artifact {args.artifact} could not be timed: {own.error}")
    if own.within_tolerance is False:
        raise WrongResultError(
            f"the artifact {args.artifact} does not compute what {args.input} does: it differs by "
            f"{own.max_abs_error}, more than rounding explains; compile it again from this input"
        )
    return 0


def _report(args: argparse.Namespace) -> int:
    from foretune.report import write_report

    data = _read_result(args.work_dir)
    output = args.output or args.work_dir / "report.html"
    _check_writable(output)
    write_report(data, output)
    print(output)
    return 0


def _read_result(work_dir: Path) -> Any:
    from foretune.tuning import RESULT

    path = work_dir / RESULT
    try:
        if not path.is_file():
            raise BadInputError(
                f"{work_dir} holds no {RESULT}: give the work directory of a `foretune tune` run"
            )
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInputError(
            f"{path} cannot be read ({error.strerror or error}): check its permissions"
        ) from error
    except (ValueError, RecursionError) as error:
        raise BadInputError(
            f"{path} is not a JSON file ({error}): run `foretune tune` again"
        ) from error


def _hardware(args: argparse.Namespace) -> int:
    from foretune.report import print_hardware

    _check_writable(args.json)
    hardware = _probe(args, measure=True)
    print_hardware(hardware)
    if args.json is not None:
        write_json(args.json, hardware.to_json())
    return 0


def _workloads(args: argparse.Namespace) -> int:
    from foretune.workload import catalog

    for entry in catalog.entries():
        print(f"{entry.group:9} {entry.name:28} {entry.description}")
    for pattern in catalog.PATTERNS.values():
        print(f"{'sized':9} {pattern}")
    return 0


def _strategies(args: argparse.Namespace) -> int:
    from foretune import search
    from foretune.tuning import resolve_names

    print(f"{'default':14} {resolve_names('default', 'default')[0]}: what `tune` uses")
    for name, text in search.descriptions().items():
        print(f"{name:14} {text}")
    print(f"{'metaschedule':14} TVM's own tuner, in `bench` only")
    return 0


def _cost_models(args: argparse.Namespace) -> int:
    from foretune import cost
    from foretune.tuning import resolve_names

    print(f"{'default':14} {resolve_names('default', 'default')[1]}: what `tune` uses")
    for name, text in cost.descriptions().items():
        print(f"{name:14} {text}")
    return 0


def _journal_path(path: Path) -> Path:
    from foretune.tuning import JOURNAL

    found = path / JOURNAL if path.is_dir() else path
    if not found.is_file():
        raise BadInputError(f"there is no journal at {found}: give a journal or a work directory")
    return found


def _db_info(args: argparse.Namespace) -> int:
    from foretune.records import Journal, print_info

    with Journal(_journal_path(args.journal), read_only=True) as journal:
        print_info(journal)
    return 0


def _db_best(args: argparse.Namespace) -> int:
    from foretune.records import Journal, best_of_each

    _check_writable(args.json)
    with Journal(_journal_path(args.journal), read_only=True) as journal:
        bests = best_of_each(journal)
        for record in bests:
            known = journal.workloads().get(record.workload)
            name = known.name if known is not None else record.workload
            print(f"{record.measurement.best_s or 0.0:12.3e} s  {name}  {record.hardware}")
    if args.json is not None:
        write_json(args.json, [record.to_json() for record in bests])
    return 0


def _db_export(args: argparse.Namespace) -> int:
    from foretune.records import Journal, export_metaschedule

    with Journal(_journal_path(args.journal), read_only=True) as journal:
        print(
            export_metaschedule(
                journal, args.directory, top=args.top or None, hardware=args.hardware
            )
        )
    return 0


def _db_import(args: argparse.Namespace) -> int:
    from foretune.records import Journal, add_missing, import_metaschedule
    from foretune.tuning import JOURNAL

    hardware = _probe(args)
    target = args.journal / JOURNAL if args.journal.is_dir() else args.journal
    outcome = import_metaschedule(args.directory, hardware)
    with Journal(target) as journal:
        journal.add_hardware(hardware)
        for workload in outcome.workloads:
            journal.add_workload(workload)
        added = add_missing(journal, outcome.records)
    print(f"{outcome}; {added} records were new")
    return 0


def _db_merge(args: argparse.Namespace) -> int:
    from foretune.records import Journal, merge
    from foretune.tuning import JOURNAL

    others = [_journal_path(other) for other in args.others]
    into = args.journal / JOURNAL if args.journal.is_dir() else args.journal
    with Journal(into) as journal:
        for other in others:
            with Journal(other, read_only=True) as source:
                print(f"{other}: {merge(journal, source)} records added")
    return 0


def _probe(args: argparse.Namespace, measure: bool = False) -> Hardware:
    from foretune.hardware import probe

    if args.threads is not None and args.threads < 1:
        raise BadInputError(f"`threads >= 1` must hold, but got threads={args.threads}")
    hardware = probe(args.target, threads=args.threads, measure=measure)
    # TVM's runtime takes half the cores unless told otherwise before its pool starts.
    os.environ["TVM_NUM_THREADS"] = str(hardware.threads)
    return hardware


def _check_writable(path: Path | None) -> None:
    """Finds out before hours of tuning, not after, that a result cannot be written."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(
            f"{path} cannot be written ({error.strerror}): choose another place"
        ) from error
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise BadInputError(f"{path} cannot be written: choose another place")


def _require_temporary_files() -> None:
    """Programs that are measured leave what they should compute in files that have no name."""
    try:
        tempfile.gettempdir()
    except OSError as error:
        raise no_temporary_files(error) from error


def _shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for text in texts:
        name, _, dims = text.partition("=")
        try:
            shapes[name] = tuple(int(d) for d in dims.split(","))
        except ValueError:
            raise BadInputError(
                f"a shape reads NAME=D,D,..., but got --shape {text}: for example x=1,3,224,224"
            ) from None
    return shapes


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise BadInputError(f"a comma-separated list of names is needed, but got {text!r}")
    return names


def entry() -> NoReturn:
    """Console entry: SIGTERM ends a run as Ctrl-C does, so that a stopped run keeps its best."""
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main())


def _interrupt(*_: object) -> NoReturn:
    # Not SIGINT again: a shell that starts a job in the background has it ignored.
    raise KeyboardInterrupt
