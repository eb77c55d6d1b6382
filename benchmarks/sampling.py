"""Candidates per second that ``Space.sample`` draws, for several workloads."""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.results import conditions, publish, table
from foretune.space import Space
from foretune.workload import Workload, load_input

WORKLOADS = ("matmul_512", "conv2d_3x3", "depthwise_3x3", "conv2d_pad_relu", "softmax")
_TITLE = "Sampling candidates"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--candidates", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    where = conditions("sampling", list(range(options.repeats)))
    rows, data = [], []
    for name in options.workloads.split(","):
        workload = load_input(name)
        assert isinstance(workload, Workload), f"{name} is a model: name a single tensor program"
        began = time.perf_counter()
        space = Space.generate(workload, where.hardware)
        generated_s = time.perf_counter() - began
        rates = []
        for seed in range(options.repeats):
            rng = np.random.default_rng(seed)
            began = time.perf_counter()
            drawn = len(space.sample(rng, options.candidates))
            rates.append(drawn / (time.perf_counter() - began))
        data.append(
            {
                "workload": name,
                "sketches": len(space.sketches),
                "size": space.size,
                "generated_s": generated_s,
                "candidates": drawn,
                "per_second": rates,
            }
        )
        rows.append(
            [
                name,
                str(len(space.sketches)),
                f"{space.size:.1e}",
                f"{generated_s:.2f}",
                f"{np.median(rates):,.0f}",
                f"{min(rates):,.0f} to {max(rates):,.0f}",
            ]
        )
    header = ["workload", "sketches", "candidates in the space", "generated in s",
              "candidates/s (median)", "range"]  # fmt: skip
    body = table(header, rows) + (
        f"\n\nEach figure: {options.candidates:,} distinct candidates drawn in one call, "
        f"{options.repeats} calls; one thread of Python; a space with fewer gives what it has."
    )
    publish("sampling", _TITLE, body, {"rows": data}, where.end(), options.write)


if __name__ == "__main__":
    main()
