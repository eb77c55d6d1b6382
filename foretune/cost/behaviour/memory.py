"""What other devices took for the same programs: the strongest thing known of an unseen one.

A program that is fast on three processors is likely fast on the fourth: picking by the mean log
slow-down over other devices (the floor that costs nothing) is hard to beat. So a regressor that is
to beat it starts from it. Of each program of a workload the memory keeps log2 of its slow-down
beside the workload's fastest, per device of training; of a device asked about, its own are left
out, in training as later, so that what is learned holds for devices that were never measured.

Symbols: ``m(p, d)`` is the slow-down of program p on device d in log2, ``a(p, d)`` what is
predicted of it there, log2 of seconds up to a constant of the workload; ``u`` is the device asked
about, and sums run over others.

- mean: of ``m(p, d)`` over d; near: weighted by the likeness of d to u; nearest: that of the
  likest device; least and most over d;
- shift: ``a(p, u) - mean of a(p, d)``, where the prediction says that u differs from the others;
  near_shift: the same with weights;
- expected: what follows of it all. With ``r`` = near + near_shift - a(p, u), what predictions got
  wrong about the program on others, and ``w = l / (l + 0.4)``, where l is the likeness of the
  likest device::

      w * near + (1 - w) * (a(p, u) + 0.3 * r)

  Of a device that is like others these are believed, of one unlike any the prediction, corrected by
  a part of its errors elsewhere. The two constants were chosen on the CPUs of AutoTVM's logs, where
  anything from half to twice of them does as well.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foretune._arrays import FloatArray
from foretune.cost.behaviour.columns import MEMORY_NAMES, factor_columns
from foretune.hardware import Device

MOST = 6.0
"""log2 slow-down of a failure, and the most that is kept of others."""
_HALF = 0.4
"""Likeness of the likest device at which others are believed as much as the prediction."""
_CARRIED = 0.3
"""Share of a prediction's error that carries over to another device."""
_WIDTH = 1.0
"""Distance of devices, in log2 of a factor, at which weight falls to 1/e."""


class Memory:
    """Slow-downs by device, workload and program.

    Args:
        devices: Those that it holds, by key.
    """

    def __init__(self, devices: Mapping[str, Device] | None = None) -> None:
        self.devices: dict[str, Device] = dict(devices or {})
        self._slow: dict[str, dict[str, dict[int, float]]] = {}
        """Device -> workload -> hash of a program -> log2 slow-down."""

    def __len__(self) -> int:
        return sum(len(known) for workloads in self._slow.values() for known in workloads.values())

    def add(self, device: Device, workload: str, keys: Sequence[str], seconds: FloatArray) -> None:
        """Remembers one group.

        Args:
            device: Where it was measured.
            workload: Its key.
            keys: Of programs, n.
            seconds: Shape (n,), NaN for a failure.
        """
        if np.isnan(seconds).all():
            return
        slow = np.log2(seconds / np.nanmin(seconds))
        slow = np.nan_to_num(np.minimum(slow, MOST), nan=MOST)
        self.devices.setdefault(device.key, device)
        known = self._slow.setdefault(device.key, {}).setdefault(workload, {})
        known.update(zip(map(_hash, keys), slow.tolist(), strict=True))

    def others(self, device: Device, workload: str) -> list[Device]:
        """The devices of the same kind, but for this one, that measured a workload."""
        return [
            other
            for key, other in self.devices.items()
            if key != device.key and other.kind == device.kind and workload in self._slow[key]
        ]

    def columns(
        self,
        device: Device,
        workload: str,
        keys: Sequence[str],
        own: FloatArray | None = None,
        theirs: Mapping[str, FloatArray] | None = None,
    ) -> FloatArray:
        """What other devices took, float64 of shape (n, len(MEMORY_NAMES)); NaN: nobody knows.

        Args:
            device: The one asked about, whose own times are left out.
            workload: Key of the workload.
            keys: Of programs, n.
            own: What is predicted for the device, log2 of seconds up to a constant, shape (n,).
            theirs: The same for others, by their keys.
        """
        table = np.full((len(keys), len(MEMORY_NAMES)), np.nan)
        others = self.others(device, workload)
        if not others:
            return table
        hashes = [_hash(key) for key in keys]
        slow = np.array(
            [[self._slow[d.key][workload].get(key, np.nan) for key in hashes] for d in others]
        )
        likeness = np.array([_likeness(device, other) for other in others])
        weights = np.where(np.isnan(slow), 0.0, likeness[:, None])
        with warnings.catch_warnings():
            # Of programs that nobody measured everything stays NaN.
            warnings.simplefilter("ignore", RuntimeWarning)
            table[:, 0] = np.nanmean(slow, axis=0)
            table[:, 1] = np.nansum(slow * weights, axis=0) / weights.sum(axis=0)
            table[:, 2] = slow[int(likeness.argmax())]
            table[:, 3] = np.nanmin(slow, axis=0)
            table[:, 4] = np.nanmax(slow, axis=0)
            if own is not None and theirs is not None:
                gap = own - np.array([theirs[other.key] for other in others])
                gap = np.where(np.isnan(slow), np.nan, gap)
                table[:, 5] = np.nanmean(gap, axis=0)
                table[:, 6] = np.nansum(gap * weights, axis=0) / weights.sum(axis=0)
                error = table[:, 1] + table[:, 6] - own
                believed = likeness.max() / (likeness.max() + _HALF)
                alone = own + _CARRIED * error
                table[:, 7] = believed * table[:, 1] + (1.0 - believed) * alone
            else:
                table[:, 7] = table[:, 1]
        return table

    def arrays(self) -> dict[str, Any]:
        """Everything it holds but for data sheets: columns by name, a row per measurement."""
        rows = [
            (device, workload, key, slow)
            for device, workloads in self._slow.items()
            for workload, known in workloads.items()
            for key, slow in known.items()
        ]
        return {
            "device": np.array([row[0] for row in rows], dtype=np.str_),
            "workload": np.array([row[1] for row in rows], dtype=np.str_),
            "program": np.array([row[2] for row in rows], dtype=np.uint64),
            "slow": np.array([row[3] for row in rows], dtype=np.float32),
        }

    @classmethod
    def of_arrays(cls, devices: Mapping[str, Device], arrays: Mapping[str, Any]) -> Memory:
        """What ``arrays`` gave.

        Args:
            devices: At least those that it names.
            arrays: Columns by name.
        """
        named = arrays["device"].tolist()
        memory = cls({key: devices[key] for key in dict.fromkeys(named)})
        columns = (named, *(arrays[name].tolist() for name in ("workload", "program", "slow")))
        for where, what, key, value in zip(*columns, strict=True):
            memory._slow.setdefault(where, {}).setdefault(what, {})[key] = value
        return memory


def _hash(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")


def _likeness(one: Device, other: Device) -> float:
    """Of devices of one kind, in (0, 1]: by the mean distance of their factors in log2."""
    gaps = np.abs(factor_columns(one) - factor_columns(other))
    return float(np.exp(-np.nanmean(gaps) / _WIDTH))
