"""The hardware a workload is tuned for: probed, described by a preset, or given as a target.

``probe`` reads the machine, ``preset`` describes a common one, ``resolve_target`` accepts whatever
a user may write after ``--target``, and ``why_not_here`` says whether its kernels can run here.
``device`` finds a processor's data sheet by any of its names, ``device_of`` that of hardware.

``_hardware`` is what code is generated for, ``_device`` what executes it, ``_described`` goes
between them. ``_probe`` and ``_peak`` read and measure this machine, ``_presets`` and ``_devices``
are tables of others, ``_products`` knows instructions for small integers.
"""

from foretune.hardware._described import compiled_generic, described_by, device_of, hardware_of
from foretune.hardware._device import FACTORS, Device, Factor
from foretune.hardware._devices import SCHEMA as DEVICES_SCHEMA
from foretune.hardware._devices import (
    Devices,
    device,
    device_names,
    find_device,
    known_devices,
    read_devices,
)
from foretune.hardware._hardware import FEATURE_COLUMNS, FEATURE_VERSION, Hardware
from foretune.hardware._presets import preset, preset_names
from foretune.hardware._probe import (
    foreign_triple,
    probe,
    resolve_target,
    usable_cores,
    why_not_here,
)
from foretune.hardware._products import (
    FILLED,
    PRODUCT,
    IntegerProduct,
    integer_product,
    product_named,
)

__all__ = [
    "DEVICES_SCHEMA",
    "FACTORS",
    "FEATURE_COLUMNS",
    "FEATURE_VERSION",
    "FILLED",
    "PRODUCT",
    "Device",
    "Devices",
    "Factor",
    "Hardware",
    "IntegerProduct",
    "compiled_generic",
    "described_by",
    "device",
    "device_names",
    "device_of",
    "find_device",
    "foreign_triple",
    "hardware_of",
    "integer_product",
    "known_devices",
    "preset",
    "preset_names",
    "probe",
    "product_named",
    "read_devices",
    "resolve_target",
    "usable_cores",
    "why_not_here",
]
