"""The hardware a workload is tuned for: probed, described by a preset, or given as a target.

``probe`` reads the machine, ``preset`` describes a common one, ``resolve_target`` accepts whatever
a user may write after ``--target``, and ``why_not_here`` says whether its kernels can run here.
"""

from foretune.hardware._device import FACTORS, Device, Factor
from foretune.hardware._hardware import FEATURE_COLUMNS, FEATURE_VERSION, Hardware
from foretune.hardware._presets import preset, preset_names
from foretune.hardware._probe import probe, resolve_target, usable_cores, why_not_here
from foretune.hardware._products import (
    FILLED,
    PRODUCT,
    IntegerProduct,
    integer_product,
    product_named,
)

__all__ = [
    "FACTORS",
    "FEATURE_COLUMNS",
    "FEATURE_VERSION",
    "FILLED",
    "PRODUCT",
    "Device",
    "Factor",
    "Hardware",
    "IntegerProduct",
    "integer_product",
    "preset",
    "preset_names",
    "probe",
    "product_named",
    "resolve_target",
    "usable_cores",
    "why_not_here",
]
