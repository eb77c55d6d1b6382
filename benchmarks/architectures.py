"""How many architectures can be tuned at all: imported, compiled with default schedules, right.

Every network is made with random weights, exported by PyTorch, imported, compiled without tuning
and compared with eager PyTorch, each in a process of its own. Outcomes:

- ``pass``: equal to the original;
- ``refused``: an error that foretune raises on purpose, with its message;
- ``another result``: it ran and differs;
- ``broken``: another exception; ``crash``: the process died; ``timeout``: it took too long;
- ``not exported``: the library cannot make it, or ``torch.export`` itself refuses it, which is no
  fault of ours.

Results are kept one by one, so that an interrupted sweep goes on where it stopped.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks._architectures import known, make
from benchmarks._suites import recorded
from benchmarks.results import conditions, publish, say, table

_TITLE = "Architectures with random weights"
_GOOD = "pass"
_NOT_OURS = "not exported"
_LONGEST_CAUSE = 160


def sweep(names: list[str], path: Path, seconds: float) -> list[dict[str, Any]]:
    """Tries every network that ``path`` does not hold yet; returns all results, in order.

    Args:
        names: Of ``known``.
        path: File of results, a JSON object a line.
        seconds: After which a process is stopped.
    """
    import torch  # noqa: F401  loaded once here, and inherited by every child
    import transformers

    transformers.logging.set_verbosity_error()
    path.parent.mkdir(parents=True, exist_ok=True)
    found = recorded(path)
    for number, name in enumerate(names):
        if name in found:
            continue
        row = found[name] = _in_a_child(name, seconds)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        say(f"{number + 1}/{len(names)} {name}: {row['outcome']} {row['cause'][:_LONGEST_CAUSE]}")
    return [found[name] for name in names]


def _in_a_child(name: str, seconds: float) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_try, args=(name, theirs), daemon=False)
    began = time.perf_counter()
    child.start()
    theirs.close()
    row: dict[str, Any]
    try:
        row = ours.recv() if ours.poll(seconds) else {"outcome": "timeout", "cause": ""}
    except EOFError:
        child.join()
        row = {"outcome": "crash", "cause": f"exit code {child.exitcode}"}
    if child.is_alive():
        child.kill()
    child.join()
    return {"name": name, **row, "seconds": round(time.perf_counter() - began, 1)}


def _try(name: str, answer: Any) -> None:
    warnings.filterwarnings("ignore")
    try:
        answer.send(_outcome(name))
    except Exception as error:  # whatever foreign code raises is a result here
        answer.send({"outcome": "broken", "cause": f"{type(error).__name__}: {error}"[:2000]})


def _outcome(name: str) -> dict[str, str]:
    import torch

    from foretune.errors import ForetuneError
    from foretune.graph import compile_model, extract, verify
    from foretune.hardware import probe
    from foretune.workload import Model, from_object

    try:
        network = make(name)
    except Exception as error:  # libraries of models are older than their dependencies
        return {"outcome": _NOT_OURS, "cause": f"not made: {type(error).__name__}: {error}"[:2000]}
    keyed = isinstance(network.inputs, dict)
    args, kwargs = ((), network.inputs) if keyed else (network.inputs, None)
    try:
        torch.export.export(network.module, args, kwargs, strict=False)
    except Exception as error:  # torch.export raises anything the model's own code may raise
        return {"outcome": _NOT_OURS, "cause": f"{type(error).__name__}: {error}"[:2000]}
    hardware = probe()
    try:
        model = from_object((network.module, network.inputs), name.rsplit("/", 1)[-1])
        assert isinstance(model, Model)
        artifact = compile_model(model, hardware, {}, extract(model, hardware))
    except ForetuneError as error:
        return {"outcome": "refused", "cause": str(error)[:2000]}
    check = verify(artifact, model)
    if check.ok:
        return {"outcome": _GOOD, "cause": ""}
    return {"outcome": "another result", "cause": f"differs by {check.max_relative_error:.2g}"}


def _body(rows: list[dict[str, Any]]) -> str:
    kinds: dict[str, collections.Counter[str]] = {}
    for row in rows:
        kind = row["name"].rsplit("/", 1)[0]
        kinds.setdefault(kind, collections.Counter())[row["outcome"]] += 1
    total = sum(kinds.values(), collections.Counter())
    order = [_GOOD, "refused", "another result", "broken", "crash", "timeout", _NOT_OURS]
    header = ["kind", "networks", *order]
    cells = [
        [kind, str(sum(count.values())), *(str(count[name]) for name in order)]
        for kind, count in [*kinds.items(), ("all", total)]
    ]
    exported = sum(total.values()) - total[_NOT_OURS]
    failures = [
        [row["name"], row["outcome"], " ".join(row["cause"].split())[:_LONGEST_CAUSE]]
        for row in rows
        if row["outcome"] != _GOOD
    ]
    return "\n\n".join(
        [
            "Which architectures can a user bring? Each is exported by PyTorch, imported, compiled "
            "without tuning, run and compared with eager PyTorch.",
            f"**{total[_GOOD]} of the {exported} that PyTorch exports work: "
            f"{total[_GOOD] / max(exported, 1):.1%}.**",
            table(header, cells),
            "What does not work, and why:" if failures else "",
            table(["network", "outcome", "cause"], failures) if failures else "",
        ]
    ).strip()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filter", default="", help="only networks whose name holds this")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every Nth network")
    parser.add_argument("--seconds", type=float, default=400.0, help="of one network, at most")
    parser.add_argument(
        "--results", type=Path, default=Path("foretune-work/architectures/results.jsonl")
    )
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    names = [name for name in known() if options.filter in name][:: options.every]
    where = conditions("architectures", [0])
    rows = sweep(names, options.results, options.seconds)
    publish("architectures", _TITLE, _body(rows), {"networks": rows}, where.end(), options.write)


if __name__ == "__main__":
    main()
