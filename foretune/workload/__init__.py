"""What is tuned: workloads, models, importers and the catalog."""

from foretune.workload._base import Workload

__all__ = ["Workload"]
