"""Parts of ``benchmarks.unseen_devices``: families of devices, rivals, and few measurements."""
