"""Reads the machine: cores that may be used, instruction set, caches, and the target for TVM."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from foretune._control_groups import OWN, ROOT, enclosing
from foretune.errors import BadInputError
from foretune.hardware._hardware import Hardware
from foretune.hardware._peak import measure_peaks
from foretune.hardware._presets import preset, preset_names

# x86-64 levels from the newest: name, register width, and the features that stand for the level.
_X86_LEVELS = (
    ("x86-64-v4", 512, frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})),
    ("x86-64-v3", 256, frozenset({"avx2", "fma", "bmi2", "f16c", "movbe"})),
    ("x86-64-v2", 128, frozenset({"sse4_1", "sse4_2", "ssse3", "popcnt"})),
    ("x86-64", 128, frozenset[str]()),
)
# Features (spelled as LLVM spells them and as the kernel does) that a hypervisor may mask although
# the processor's model has them. Code for the model would die of an illegal instruction.
_MASKABLE = (
    ("avx2", "avx2"),
    ("fma", "fma"),
    ("avx512f", "avx512f"),
    ("avx512bw", "avx512bw"),
    ("avx512vl", "avx512vl"),
    ("avx512vnni", "avx512_vnni"),
    ("avx512bf16", "avx512_bf16"),
    ("avx512fp16", "avx512_fp16"),
    ("amx-tile", "amx_tile"),
)
_CORES_PER_MULTIPROCESSOR = {60: 64, 70: 64, 72: 64, 75: 64, 80: 64, 90: 128, 100: 128}
_X86_WIDE = (("avx512f", 512), ("avx", 256))
_X86_NAMES = ("x86_64", "amd64", "i686")
_HOST_NAMES = ("host", "native", "cpu")


def probe(target: str | None = None, threads: int | None = None, measure: bool = False) -> Hardware:
    """Describes the hardware to tune for, which need not be in this machine.

    Args:
        target: None for this machine's CPU, or anything ``resolve_target`` accepts.
        threads: Threads kernels run on; None as ``resolve_target`` says.
        measure: Also measure peak GFLOP/s and memory bandwidth of a CPU target that runs on this
            machine: takes about three seconds, in a child process, once a day (they are kept in the
            user's cache directory).

    Raises:
        BadInputError: As ``resolve_target``.
    """
    hardware = resolve_target(target or "host", threads)
    if measure and hardware.has_cores and why_not_here(hardware) is None:
        peaks = measure_peaks(hardware.target, hardware.threads, hardware.simd_bits)
        hardware = replace(hardware, peak_gflops=peaks.gflops, bandwidth_gbs=peaks.bandwidth_gbs)
    return hardware


def resolve_target(text: str, threads: int | None = None) -> Hardware:
    """Makes hardware from what a user wrote.

    Args:
        text: ``"host"`` (this CPU), ``"cuda"`` (the first GPU), a preset's name, one of TVM's
            target tags (``"nvidia/nvidia-t4"``), a TVM target as JSON (``{"kind": ...}``) or as
            options (``"llvm -mcpu=znver4"``).
        threads: Threads kernels run on. None for every core this process may use where the target
            is this CPU; for what the preset or the target itself says where it is another
            machine. A CPU preset that runs here lies between: its own number, but no more than
            the cores this process may use.

    Raises:
        BadInputError: Nothing of that name is known, TVM refuses the target, no GPU is there,
            ``threads`` is below 1, or it is above the usable cores of this CPU. A preset may be
            given more threads than this machine has: it can be lowered for, but not measured.
    """
    if threads is not None and threads < 1:
        raise BadInputError(f"threads must be at least 1, but got {threads}")
    text = text.strip()
    if text in _HOST_NAMES:
        return _host({}, threads)
    if text == "cuda":
        return _cuda()
    if text in preset_names():
        return preset(text, threads) if threads else _fitted(preset(text))
    options = _parse_target(text)
    if options["kind"] == "llvm" and _is_host_triple(options.get("mtriple", "")):
        return _host(options, threads)
    count = threads or int(options.get("num-cores", 1))
    if options["kind"] == "llvm":
        options = {**options, "num-cores": count}
    name = str(options.get("mcpu") or options.get("arch") or options["kind"])
    bits = _vector_width(options) if options["kind"] == "llvm" else 0
    return Hardware(
        name=name, target=json.dumps(options, sort_keys=True), threads=count, simd_bits=bits
    )


def usable_cores() -> int:
    """Cores this process may keep busy: the affinity mask, cut by a control group's quota."""
    cores = len(os.sched_getaffinity(0))
    quota = _quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


def why_not_here(hardware: Hardware) -> str | None:
    """Why kernels for this hardware cannot run on this machine, and what to do; None if they can.

    Without this check a child process would die of an illegal instruction, or time its kernels
    with threads that take turns on one core.
    """
    target = json.loads(hardware.target)
    elsewhere = (
        "choose a target that is here, name the device with --device, measure on the device "
        "itself, or replay records"
    )
    if hardware.place:
        return f"it stands for devices that are reached over RPC ({hardware.place}): {elsewhere}"
    if not hardware.has_cores:
        from foretune import _tvm

        if _tvm.tvm.runtime.device(target["kind"], 0).exist:
            return None
        return f"it needs a {target['kind']!r} device, and this machine has none: {elsewhere}"
    if not _is_host_triple(target.get("mtriple", "")):
        return f"its code is for {target['mtriple']}, not {platform.machine()}: {elsewhere}"
    flags = _cpu_flags()
    if hardware.simd_bits > _simd_bits(flags):
        widths = f"{hardware.simd_bits} bits, and this machine has {_simd_bits(flags)}"
        return f"it needs vector registers of {widths}: {elsewhere}"
    lacking = _lacking_features(target, flags) if "mcpu" in target else []
    if lacking:
        return f"it needs {', '.join(lacking)}, which this processor lacks: {elsewhere}"
    cores = usable_cores()
    if hardware.threads > cores:
        threads = f"{hardware.threads} threads, and this process may use {cores} cores"
        return f"it needs {threads}: pass --threads {cores}, or replay records"
    return None


def foreign_triple(target: str) -> str:
    """The triple of a target's code where that is for another architecture; empty where it is not.

    Args:
        target: As ``Hardware.target`` has it.
    """
    attributes = json.loads(target)
    triple = str(attributes.get("mtriple", "")) if attributes["kind"] == "llvm" else ""
    return "" if _is_host_triple(triple) else triple


def _fitted(hardware: Hardware) -> Hardware:
    """A CPU preset with no more threads than there are cores, if it then runs on this machine."""
    threads = min(hardware.threads, usable_cores())
    if not hardware.has_cores or threads == hardware.threads:
        return hardware
    fewer = preset(hardware.name, threads)
    return fewer if why_not_here(fewer) is None else hardware


def _host(options: Mapping[str, Any], threads: int | None) -> Hardware:
    cores = usable_cores()
    wanted = threads or int(options.get("num-cores", cores))
    if wanted > cores:
        raise BadInputError(
            f"threads must be at most {cores}, the cores this process may use, but got {wanted}"
        )
    flags = _cpu_flags()
    target = {"kind": "llvm", "mcpu": _host_cpu(flags), **options, "num-cores": wanted}
    l1, l2, l3 = _caches()
    return Hardware(
        name=_cpu_name(),
        target=json.dumps(target, sort_keys=True),
        threads=wanted,
        simd_bits=min(_simd_bits(flags), _vector_width(target)),
        l1_bytes=l1,
        l2_bytes=l2,
        l3_bytes=l3,
    )


def _host_cpu(flags: frozenset[str]) -> str:
    """LLVM's name of this CPU, or its x86-64 level where LLVM's name would promise too much."""
    from foretune import _tvm

    codegen = _tvm.tvm.target.codegen
    name = str(codegen.llvm_get_system_cpu())
    if not _is_x86():
        return name or "generic"
    known = name not in ("", "generic") and codegen.llvm_is_valid_cpu(name, "x86_64-linux-gnu")
    if known and not _lacking_features({"kind": "llvm", "mcpu": name}, flags):
        return name
    return next(level for level, _bits, needed in _X86_LEVELS if needed <= flags)


def _lacking_features(options: Mapping[str, Any], flags: frozenset[str]) -> list[str]:
    """Instruction sets that LLVM would use for a CPU target and this processor does not offer."""
    if not _is_x86():
        return []
    from foretune import _tvm

    has_features = _tvm.tvm.target.codegen.llvm_cpu_has_features
    target = _tvm.Target(dict(options))
    return [
        llvm for llvm, kernel in _MASKABLE if kernel not in flags and has_features([llvm], target)
    ]


def _simd_bits(flags: frozenset[str]) -> int:
    if _is_x86():
        return next(bits for _level, bits, needed in _X86_LEVELS if needed <= flags)
    return 128 if flags & {"asimd", "neon"} else 0


def _vector_width(options: Mapping[str, Any]) -> int:
    """Bits of a vector register that LLVM would use for a CPU target.

    TVM's own answer is 512 for every x86 processor, with or without such registers.
    """
    if "vector-width" in options:
        return int(options["vector-width"])
    from foretune import _tvm

    codegen, target = _tvm.tvm.target.codegen, _tvm.Target(dict(options))
    triple = str(options.get("mtriple", "")).partition("-")[0]
    if triple not in _X86_NAMES and not (_is_x86() and not triple):
        return int(codegen.llvm_get_vector_width(target))
    wide = (bits for name, bits in _X86_WIDE if codegen.llvm_cpu_has_features([name], target))
    return next(wide, 128)


def _is_x86() -> bool:
    return platform.machine().lower() in _X86_NAMES


def _is_host_triple(triple: str) -> bool:
    machine = triple.partition("-")[0].replace("amd64", "x86_64")
    return not triple or machine == platform.machine()


def _cpuinfo() -> dict[str, str]:
    """The first processor's fields of ``/proc/cpuinfo``; empty where there is no such file."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), value.strip())
    return fields


def _cpu_flags() -> frozenset[str]:
    fields = _cpuinfo()
    return frozenset((fields.get("flags") or fields.get("Features") or "").lower().split())


def _cpu_name() -> str:
    """The processor's model; a name that says only the brand gets family and model numbers.

    Virtual machines report ``AMD EPYC`` for Zen 4 and Zen 5 alike, and one key for both would mix
    their records.
    """
    fields = _cpuinfo()
    name = fields.get("model name") or _lscpu().get("Model name") or platform.processor()
    if not name or name == "-":
        return platform.machine()
    if not any(c.isdigit() for c in name) and {"cpu family", "model"} <= fields.keys():
        return f"{name} family {fields['cpu family']} model {fields['model']}"
    return name


def _lscpu() -> dict[str, str]:
    try:
        done = subprocess.run(
            ["lscpu"], capture_output=True, text=True, timeout=10, check=True, env={"LC_ALL": "C"}
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = (line.partition(":") for line in done.stdout.splitlines())
    return {name.strip(): value.strip() for name, _colon, value in pairs}


def _caches(root: Path = Path("/sys/devices/system/cpu")) -> tuple[int, int, int]:
    """Bytes of L1 data, L2 and L3 cache as one core sees them; 0 where unknown."""
    core = min(os.sched_getaffinity(0))
    sizes = [0, 0, 0]
    for index in root.glob(f"cpu{core}/cache/index*"):
        try:
            level = int((index / "level").read_text())
            kind = (index / "type").read_text().strip()
            size = _parse_bytes((index / "size").read_text())
        except (OSError, ValueError):
            continue
        if kind in ("Data", "Unified") and 1 <= level <= 3:
            sizes[level - 1] = size
    if not any(sizes):
        fields = _lscpu()
        sizes = [_parse_bytes(fields.get(f"{name} cache", "")) for name in ("L1d", "L2", "L3")]
    return sizes[0], sizes[1], sizes[2]


def _parse_bytes(text: str) -> int:
    """Bytes of ``"32K"``, ``"32768"`` or lscpu's ``"64 KiB (2 instances)"`` (of one instance)."""
    matched = re.match(r"\s*([\d.]+)\s*([KMG]?)(?:i?B)?\s*(?:\((\d+) instances?\))?", text)
    if not matched:
        return 0
    scale = 1024 ** " KMG".index(matched[2] or " ")
    return int(float(matched[1]) * scale) // int(matched[3] or 1)


def _quota(root: Path = ROOT, own: Path = OWN) -> float | None:
    """Cores' worth of time per second that control groups allow, or None for no limit.

    Version 2 keeps ``cpu.max`` in every group, version 1 two files.
    """
    limits = []
    for directory in enclosing("cpu", root, own):
        with contextlib.suppress(OSError, ValueError):
            quota, period = (directory / "cpu.max").read_text().split()
            limits += [] if quota == "max" else [int(quota) / int(period)]
        with contextlib.suppress(OSError, ValueError):
            quota_us = int((directory / "cpu.cfs_quota_us").read_text())
            period_us = int((directory / "cpu.cfs_period_us").read_text())
            limits += [quota_us / period_us] if quota_us > 0 else []
    return min(limits, default=None)


def _parse_target(text: str) -> dict[str, Any]:
    """The options of a TVM target written as JSON, as a tag, or as ``kind -option=value``."""
    from foretune import _tvm

    options: Any
    try:
        if text.startswith("{"):
            options = json.loads(text)
        elif text in _tvm.tvm.target.list_tags():
            options = _tag_options(text)
        else:
            kind, *flags = text.split()
            if any(not re.fullmatch(r"-[\w-]+=\S+", flag) for flag in flags):
                raise ValueError("options are written -name=value")
            pairs = (flag[1:].partition("=") for flag in flags)
            values = {name: int(v) if v.isdigit() else v for name, _equals, v in pairs}
            options = {"kind": kind, **values}
        _refuse_unknown_cpu(options)
        _tvm.Target(options)
    except (ValueError, TypeError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise BadInputError(
            f"target {text!r} is none of: host, cuda, a preset ({', '.join(preset_names())}), "
            f'or a TVM target such as {{"kind": "llvm", "mcpu": "znver4"}} ({reason})'
        ) from error
    return dict(options)


def _refuse_unknown_cpu(options: Any) -> None:
    """TVM compiles for a generic processor where it does not know the one that was named.

    Raises:
        ValueError: LLVM has no such processor.
    """
    from foretune import _tvm

    if not isinstance(options, dict) or options.get("kind") != "llvm" or "mcpu" not in options:
        return
    name = options["mcpu"]
    rest = _tvm.Target({key: value for key, value in options.items() if key != "mcpu"})
    known = [str(cpu) for cpu in _tvm.tvm.get_global_func("target.llvm_get_cpu_archlist")(rest)]
    if known and name not in known:
        near = difflib.get_close_matches(str(name), known)
        likely = f", did you mean {' or '.join(near)}" if near else ""
        raise ValueError(f"LLVM knows no processor {name!r}{likely}")


def _tag_options(tag: str) -> dict[str, Any]:
    from foretune import _tvm

    exported = dict(_tvm.Target(tag).export())
    # Derived again from the rest; given back to TVM they would be refused.
    derived = ("tag", "keys", "host")
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in exported.items()
        if name not in derived
        and not name.startswith("feature.")
        and isinstance(value, (str, int, float, tuple))
    }


def _cuda() -> Hardware:
    from foretune import _tvm

    device = _tvm.tvm.device("cuda", 0)
    if not device.exist:
        raise BadInputError(
            "target 'cuda' needs an NVIDIA GPU, its driver, and libcudart.so.13 where the loader "
            "finds it, but TVM sees none: to lower for a GPU that is not here, name a preset (for "
            "example rtx-3090)"
        )
    capability = int(float(device.compute_version) * 10 + 0.5)
    clock_mhz = float(device.max_clock_rate) / 1e3
    multiprocessors = int(device.multi_processor_count)
    l2_bytes = int(device.l2_cache_size_bytes or 0)
    lanes = _CORES_PER_MULTIPROCESSOR.get(capability, 128) * multiprocessors
    target = {
        "kind": "cuda",
        "arch": f"sm_{capability}",
        "max_num_threads": int(device.max_threads_per_block),
        "max_shared_memory_per_block": int(device.max_shared_memory_per_block),
        "max_threads_per_block": int(device.max_threads_per_block),
        "registers_per_block": 65536,
        "thread_warp_size": int(device.warp_size),
    }
    return Hardware(
        name=str(device.device_name),
        target=json.dumps(target, sort_keys=True),
        threads=1,
        l2_bytes=l2_bytes,
        peak_gflops=2e-3 * clock_mhz * lanes,
        gpu={
            "multiprocessors": float(multiprocessors),
            "warp_size": float(device.warp_size),
            "max_threads_per_block": float(device.max_threads_per_block),
            "shared_memory_per_block": float(device.max_shared_memory_per_block),
            "registers_per_block": 65536.0,
            "l2_bytes": float(l2_bytes),
            "clock_mhz": clock_mhz,
            "memory_bytes": float(device.total_global_memory or 0),
            "compute_capability": capability / 10,
        },
    )
