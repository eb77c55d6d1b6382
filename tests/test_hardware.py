"""What is probed, what a target text may be, and what is refused."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretune.errors import BadInputError
from foretune.hardware import (
    FEATURE_COLUMNS,
    Hardware,
    _peak,
    _probe,
    preset,
    preset_names,
    probe,
    resolve_target,
    usable_cores,
    why_not_here,
)


def test_probe_describes_this_machine():
    hardware = probe()
    target = json.loads(hardware.target)
    assert hardware.kind == "llvm"
    assert hardware.threads == usable_cores() == target["num-cores"]
    assert hardware.name and hardware.simd_bits in (128, 256, 512)
    assert hardware.gpu is None and hardware.peak_gflops == 0


def test_threads_follow_the_affinity_mask_of_the_process():
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
        "from foretune.hardware import probe; print(probe().threads)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "1", done.stderr


def test_threads_can_be_fewer_but_not_more_than_the_cores():
    assert probe(threads=1).threads == 1
    assert json.loads(probe(threads=1).target)["num-cores"] == 1
    too_many = len(os.sched_getaffinity(0)) + 1
    with pytest.raises(BadInputError, match=f"at most .* but got {too_many}"):
        probe(threads=too_many)
    with pytest.raises(BadInputError, match="at least 1, but got 0"):
        probe(threads=0)


def test_the_probed_target_compiles_and_runs():
    from foretune import _tvm

    tvm = _tvm.tvm
    x = tvm.te.placeholder((64,), name="x")
    y = tvm.te.compute((64,), lambda i: x[i] * 2.0 + 1.0)
    module = tvm.compile(tvm.te.create_prim_func([x, y]), probe().tvm_target()).jit()
    out = tvm.runtime.tensor(np.zeros(64, "float32"))
    module["main"](tvm.runtime.tensor(np.arange(64, dtype="float32")), out)
    np.testing.assert_allclose(out.numpy(), np.arange(64) * 2 + 1)


def test_code_is_generated_at_level_2_unless_the_target_says_otherwise():
    hardware = probe()
    assert "opt-level" not in hardware.tvm_target().attrs
    assert int(hardware.code_target().attrs["opt-level"]) == 2
    assert hardware.code_target().attrs["mcpu"] == hardware.tvm_target().attrs["mcpu"]
    target = json.dumps({**json.loads(hardware.target), "opt-level": 1})
    assert int(replace(hardware, target=target).code_target().attrs["opt-level"]) == 1
    gpu = preset("a100")
    assert str(gpu.code_target()) == str(gpu.tvm_target())


@pytest.mark.machine
def test_measured_peaks_are_plausible():
    hardware = probe(threads=1, measure=True)
    # One SSE core of a slow machine to one AVX-512 core of a fast one.
    assert 1 < hardware.peak_gflops < 1000
    assert 0.5 < hardware.bandwidth_gbs < 1000
    assert hardware.key == probe(threads=1).key, "measured figures must not change the key"


class TestKeptPeaks:
    """Peaks are measured once a day and start of the machine, by whichever process comes first."""

    PEAKS = _peak.Peaks(123.0, 45.0)

    @pytest.fixture(autouse=True)
    def counted(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        self.file = tmp_path / "foretune" / "peaks.json"
        self.measured = 0

        self.free = True

        def measure(*_arguments: object) -> tuple[_peak.Peaks, bool]:
            self.measured += 1
            return self.PEAKS, self.free

        monkeypatch.setattr(_peak, "_measured", measure)
        yield
        _peak.measure_peaks.cache_clear()

    def ask(self, target="{}", threads=1):
        _peak.measure_peaks.cache_clear()  # As another process would.
        assert _peak.measure_peaks(target, threads, 128) == self.PEAKS
        return self.measured

    def test_once_for_all_processes(self):
        assert self.ask() == 1 and self.file.is_file()
        assert self.ask() == 1
        assert self.ask(threads=2) == 2 and self.ask("other") == 3
        assert self.ask() == self.ask(threads=2) == 3

    def test_again_after_a_day_or_a_start_or_on_other_cores(self, monkeypatch):
        assert self.ask() == 1
        now = _peak.time.time()
        for when, count in ((now + 86_300, 1), (now + 86_500, 2), (now - 10, 3)):
            monkeypatch.setattr(_peak.time, "time", lambda when=when: when)
            assert self.ask() == count
        started = self.file.parent / "boot_id"
        started.write_text("of another start")
        monkeypatch.setattr(_peak, "_STARTED", started)
        assert self.ask() == 4
        monkeypatch.setattr(_peak.os, "sched_getaffinity", lambda _: {99})
        assert self.ask() == 5

    @pytest.mark.parametrize(
        "text",
        ["", "[]", "{}", '{"foretune.peaks/1": 1}', '{"foretune.peaks/1": {"k": [1, 2]}}', "\x00{"],
    )
    def test_a_file_that_cannot_be_read_is_replaced(self, text):
        self.file.parent.mkdir()
        self.file.write_text(text)
        assert self.ask() == 1 and self.ask() == 1

    def test_without_a_place_they_are_measured_each_time(self, monkeypatch):
        self.file.parent.write_text("no folder")
        assert self.ask() == 1 and self.ask() == 2
        monkeypatch.setattr(_peak, "_STARTED", Path("/nowhere"))
        assert self.ask() == 3

    def test_what_others_disturbed_is_not_kept(self):
        self.free = False
        assert self.ask() == 1 and self.ask() == 2
        self.free = True
        assert self.ask() == 3 and self.ask() == 3


def test_peaks_are_measured_once_per_process(monkeypatch):
    first = probe(threads=1, measure=True)

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(_peak.subprocess, "run", refuse)
    assert probe(threads=1, measure=True) == first


def test_a_measurement_that_fails_is_a_warning_and_zeros(monkeypatch):
    monkeypatch.setattr(_peak, "_CHILD", "raise SystemExit('no luck')")
    with pytest.warns(UserWarning, match="could not be measured: no luck"):
        assert _peak.measure_peaks("{}", 1, 128) == _peak.Peaks(0.0, 0.0)
    _peak.measure_peaks.cache_clear()


def test_foreign_targets_are_not_measured():
    assert probe("raspberry-pi-5", measure=True).peak_gflops == 0


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_a_target_tvm_accepts(name):
    hardware = preset(name)
    assert hardware.name == name
    assert str(hardware.tvm_target().kind) == hardware.kind
    assert (hardware.gpu is not None) == (hardware.kind == "cuda")


def test_presets_have_distinct_keys():
    assert len({preset(name).key for name in preset_names()}) == len(preset_names())


def test_threads_of_a_cpu_preset_can_be_chosen():
    assert json.loads(preset("zen4", threads=3).target)["num-cores"] == 3


def _preset_of_this_machine() -> str:
    """The preset that the fewest machines of this architecture cannot run."""
    return "x86-64-v2" if _probe._is_x86() else "raspberry-pi-4"


def test_a_preset_that_runs_here_takes_no_more_threads_than_there_are_cores(monkeypatch):
    name = _preset_of_this_machine()
    monkeypatch.setattr(_probe, "usable_cores", lambda: 3)
    assert (preset(name).threads, resolve_target(name).threads) == (4, 3)
    assert json.loads(resolve_target(name).target)["num-cores"] == 3
    assert resolve_target(name, threads=9).threads == 9, "what is asked for is kept"
    monkeypatch.setattr(_probe, "usable_cores", lambda: 64)
    assert resolve_target(name) == preset(name)


def test_a_preset_of_another_machine_keeps_its_threads(monkeypatch):
    monkeypatch.setattr(_probe, "usable_cores", lambda: 1)
    other = "graviton3" if _probe._is_x86() else "zen4"
    assert resolve_target(other) == preset(other)
    assert resolve_target("t4") == preset("t4")


def test_kernels_for_this_machine_run_here():
    assert why_not_here(probe()) is None
    assert why_not_here(resolve_target(_preset_of_this_machine())) is None


def test_another_architecture_does_not_run_here():
    other = "raspberry-pi-5" if _probe._is_x86() else "x86-64-v2"
    triple = json.loads(preset(other).target)["mtriple"]
    assert f"for {triple}, not" in str(why_not_here(preset(other)))


def test_a_graviton3_runs_its_own_preset(monkeypatch):
    monkeypatch.setattr(_probe.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(_probe, "_cpu_flags", lambda: frozenset({"fp", "asimd", "sve", "bf16"}))
    monkeypatch.setattr(_probe, "usable_cores", lambda: 8)
    assert why_not_here(preset("graviton3")) is None


def test_more_threads_than_cores_do_not_run_here():
    cores = usable_cores()
    reason = why_not_here(preset(_preset_of_this_machine(), threads=cores + 1))
    assert f"{cores + 1} threads" in str(reason) and f"--threads {cores}" in str(reason)


def test_wider_registers_do_not_run_here(monkeypatch):
    if not _probe._is_x86():
        pytest.skip("x86 only")
    monkeypatch.setattr(_probe, "_cpu_flags", lambda: frozenset({"sse4_1"}))
    assert "256 bits, and this machine has 128" in str(why_not_here(preset("zen3", threads=1)))


def test_an_instruction_set_that_the_processor_lacks_does_not_run_here(monkeypatch):
    """Same width, another generation: the child would die of an illegal instruction."""
    if not _probe._is_x86():
        pytest.skip("x86 only")
    avx512 = _probe._X86_LEVELS[0][2] | _probe._X86_LEVELS[1][2]
    monkeypatch.setattr(_probe, "_cpu_flags", lambda: avx512)
    assert why_not_here(preset("x86-64-v4", threads=1)) is None
    assert "needs avx512vnni, avx512bf16," in str(why_not_here(preset("zen4", threads=1)))


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ('{"kind": "llvm", "mcpu": "x86-64-v3"}', "llvm", {"mcpu": "x86-64-v3"}),
        ("llvm -mcpu=x86-64-v2", "llvm", {"mcpu": "x86-64-v2"}),
        ("nvidia/nvidia-t4", "cuda", {"arch": "sm_75"}),
        ("raspberry-pi/4b-aarch64", "llvm", {"mcpu": "cortex-a72", "num-cores": 4}),
        ("rtx-3090", "cuda", {"arch": "sm_86"}),
    ],
)
def test_target_texts(text, kind, expected):
    hardware = resolve_target(text)
    assert hardware.kind == kind
    assert expected.items() <= json.loads(hardware.target).items()
    assert str(hardware.tvm_target().kind) == kind


def test_a_raw_cpu_target_keeps_its_own_thread_count():
    assert resolve_target('{"kind": "llvm", "num-cores": 1}').threads == 1


@pytest.mark.parametrize(
    ("options", "bits"),
    [
        ({"mcpu": "x86-64-v2"}, 128),
        ({"mcpu": "haswell"}, 256),
        ({"mcpu": "x86-64-v3"}, 256),
        ({"mcpu": "skylake-avx512"}, 512),
        ({"mcpu": "skylake-avx512", "vector-width": 256}, 256),
    ],
)
def test_vector_registers_are_those_of_the_target_not_of_this_machine(options, bits):
    target = {"kind": "llvm", "mtriple": "x86_64-linux-gnu", **options}
    assert _probe._vector_width(target) == bits


@pytest.mark.parametrize(
    "text", ["no-such-machine", '{"kind":', '{"kind": "llvm", "bogus": 1}', "llvm mcpu", "[1]", ""]
)
def test_bad_targets_are_one_clear_line(text):
    with pytest.raises(BadInputError, match=r"rtx-3090.*TVM target") as caught:
        resolve_target(text)
    assert "\n" not in str(caught.value)


def test_an_unknown_preset_lists_the_known_ones():
    with pytest.raises(BadInputError, match=r"'zen9'.*zen4"):
        preset("zen9")


def test_cuda_without_a_gpu_says_what_to_do():
    from foretune import _tvm

    if _tvm.tvm.device("cuda", 0).exist:
        assert resolve_target("cuda").gpu is not None
    else:
        with pytest.raises(BadInputError, match="needs an NVIDIA GPU"):
            resolve_target("cuda")


def test_a_masked_feature_lowers_the_target_to_a_level(monkeypatch):
    """A hypervisor may hide AVX-512 of a processor whose model has it."""
    if not _probe._is_x86():
        pytest.skip("x86 only")
    from foretune import _tvm

    monkeypatch.setattr(_tvm.tvm.target.codegen, "llvm_get_system_cpu", lambda: "znver4")
    everything = {"avx2", "fma", "bmi2", "f16c", "movbe", "sse4_1", "sse4_2", "ssse3", "popcnt"}
    assert _probe._host_cpu(frozenset(everything)) == "x86-64-v3"
    assert _probe._host_cpu(frozenset({"sse4_1", "sse4_2", "ssse3", "popcnt"})) == "x86-64-v2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("32K", 32768),
        ("1024K\n", 2**20),
        ("32M", 32 * 2**20),
        ("64 KiB (2 instances)", 32768),
        ("32 MiB (1 instance)", 32 * 2**20),
        ("", 0),
        ("unknown", 0),
    ],
)
def test_cache_sizes_are_read_in_both_notations(text, expected):
    assert _probe._parse_bytes(text) == expected


def test_caches_fall_back_where_sysfs_is_hidden(tmp_path, monkeypatch):
    monkeypatch.setattr(_probe, "_lscpu", lambda: {"L1d cache": "64 KiB (2 instances)"})
    assert _probe._caches(tmp_path) == (32768, 0, 0)


def _own_groups(folder, line):
    file = folder / "own"
    file.write_text(f"{line}\n")
    return file


def test_a_quota_of_any_enclosing_group_limits_the_cores(tmp_path):
    own = _own_groups(tmp_path, "0::/outer/inner")
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000\n")
    assert _probe._quota(tmp_path, own) is None
    (tmp_path / "outer" / "cpu.max").write_text("150000 100000\n")
    assert _probe._quota(tmp_path, own) == 1.5


@pytest.mark.parametrize("group", ["/", "/outer", "/host/name"])
def test_a_quota_of_version_1_limits_the_cores(tmp_path, group):
    own = _own_groups(tmp_path, f"4:cpu,cpuacct:{group}")
    folder = tmp_path / "cpu" / ("outer" if group == "/outer" else "")
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("200000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert _probe._quota(tmp_path, own) == 2.0
    (folder / "cpu.cfs_quota_us").write_text("-1\n")
    assert _probe._quota(tmp_path, own) is None


def test_half_a_core_is_still_one_thread(monkeypatch):
    monkeypatch.setattr(_probe, "_quota", lambda: 0.5)
    assert usable_cores() == 1


def test_hardware_says_what_its_targets_can_do():
    cpu, gpu = probe(), preset("a100")
    assert cpu.has_cores and not gpu.has_cores
    assert (cpu.device_kind, gpu.device_kind) == ("cpu", "gpu")
    assert (cpu.runtime_device, gpu.runtime_device) == ("cpu", "cuda")
    assert gpu.limits_threads and not cpu.limits_threads


def test_json_and_pickle_round_trips_keep_hardware_equal():
    for hardware in (probe(), preset("a100")):
        data = json.loads(json.dumps(hardware.to_json()))
        assert Hardware.from_json(data) == hardware
        assert data["key"] == hardware.key
        assert pickle.loads(pickle.dumps(hardware)) == hardware


def test_the_key_depends_on_name_target_and_threads_only():
    one = Hardware("cpu", '{"kind": "llvm", "mcpu": "x"}', 2)
    assert one.key == Hardware("cpu", '{"mcpu": "x", "kind": "llvm"}', 2, l1_bytes=7).key
    assert one.key != Hardware("cpu", one.target, 3).key
    assert one.key != Hardware("other", one.target, 2).key


def test_features_are_named_and_tell_cpu_from_gpu():
    names = [name for name, _unit in FEATURE_COLUMNS]
    cpu, gpu = probe().features(), preset("rtx-4090").features()
    assert cpu.shape == gpu.shape == (len(names),) and cpu.dtype == np.float64
    assert len(set(names)) == len(names) and all(unit for _name, unit in FEATURE_COLUMNS)
    assert (cpu[names.index("is_gpu")], gpu[names.index("is_gpu")]) == (0, 1)
    assert cpu[names.index("threads")] == usable_cores()
    assert cpu[names.index("gpu_multiprocessors")] == 0
    assert gpu[names.index("gpu_multiprocessors")] == 128
