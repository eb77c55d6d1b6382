"""``foretune run``: runs an artifact, on its sample or on arrays from a file."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretune._files import write_bytes
from foretune.cli._files import check_files
from foretune.cli._options import add_command
from foretune.errors import BadInputError, WrongResultError

if TYPE_CHECKING:
    from foretune._arrays import Array
    from foretune.graph import Artifact, Sample


def add_run(commands: Any) -> None:
    """Adds the command to the parser."""
    run = add_command(
        commands,
        "run",
        _run,
        "run an artifact; without --inputs, on the sample saved with it, and compare with what the "
        "original returned",
    )
    run.add_argument("artifact", type=Path, metavar="A.so", help="what `tune -o` wrote")
    run.add_argument(
        "--inputs", type=Path, metavar="X.npz", help="arrays by the names of the inputs"
    )
    run.add_argument(
        "-o", "--output", type=Path, metavar="Y.npz", help="writes the outputs by their names"
    )
    run.add_argument("--repeat", type=int, default=1, metavar="N", help="calls to time; default: 1")


def _run(args: argparse.Namespace) -> int:
    from foretune.graph import Artifact, artifact_files, read_inputs

    if args.repeat < 1:
        raise BadInputError(f"`repeat >= 1` must hold, but got --repeat {args.repeat}")
    if args.output is not None and args.output.suffix != ".npz":
        raise BadInputError(f"outputs are written as .npz, but got -o {args.output}: name it *.npz")
    check_files(
        {"-o": args.output},
        {"the artifact": artifact_files(args.artifact), "--inputs": args.inputs},
    )
    artifact = Artifact.load(args.artifact)
    if args.inputs is not None:
        sample, inputs = None, read_inputs(args.inputs, artifact.inputs)
    else:
        sample = _sample_of(artifact, args.artifact)
        inputs = dict(zip((s.name for s in artifact.inputs), sample.inputs, strict=True))
    outputs = artifact.run(inputs)
    seconds = artifact.time(inputs, args.repeat)
    if args.output is not None:
        _write(args.output, artifact, outputs)
    different = _print(artifact, outputs, sample)
    print(_latency(seconds, artifact.threads))
    if different:
        raise WrongResultError(
            f"{args.artifact} computes something else here than the original did: "
            f"{'; '.join(different)}; compile it again"
        )
    return 0


def _sample_of(artifact: Artifact, library: Path) -> Sample:
    sample = artifact.sample
    if sample is None:
        left_out = (artifact.manifest.get("sample") or {}).get("left_out")
        reason = f" (left out: {left_out})" if left_out else ""
        raise BadInputError(
            f"no sample was saved with {library}{reason}: give inputs with --inputs X.npz"
        )
    return sample


def _write(file: Path, artifact: Artifact, outputs: Sequence[Array]) -> None:
    from foretune.graph import pack_arrays

    names = [spec.name for spec in artifact.outputs]
    write_bytes(file, pack_arrays(dict(zip(names, outputs, strict=True))))


def _print(artifact: Artifact, outputs: Sequence[Array], sample: Sample | None) -> list[str]:
    """One line per output; what is wrong, for those that differ from the sample."""
    from foretune.graph import judge_outputs

    names = [spec.name for spec in artifact.outputs]
    lines = [
        f"{name}: {output.dtype.name} of shape {output.shape}"
        for name, output in zip(names, outputs, strict=True)
    ]
    if sample is None:
        print("\n".join(lines))
        return []
    tolerances = sample.tolerances
    steps = sample.steps or (0.0,) * len(names)
    seen = judge_outputs(sample.outputs, outputs, names, tolerances, steps, lambda: sample.exact)
    for line, difference, tolerance in zip(lines, seen.differences, tolerances, strict=True):
        judge = "" if difference.within(tolerance) else f"; judged by {seen.judged_by}"
        print(
            f"{line}, largest difference {difference.absolute:.2g} ({difference.relative:.2g} of "
            f"the magnitude there, rounding explains {tolerance:.2g}{judge})"
        )
    return [
        difference.describe(tolerance)
        for difference, tolerance in zip(seen.differences, tolerances, strict=True)
        if any(difference is wrong for wrong in seen.wrong)
    ]


def _latency(seconds: Sequence[float], threads: int) -> str:
    on = f"on {threads} thread{'s' if threads > 1 else ''}"
    if len(seconds) == 1:
        return f"latency {_ms(seconds[0])} {on}, one call"
    low, median, high = min(seconds), statistics.median(seconds), max(seconds)
    return f"latency {_ms(median)} {on}, median of {len(seconds)} ({_ms(low)} to {_ms(high)})"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
