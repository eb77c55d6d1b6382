"""Networks whose kernels are training workloads, and which of these make the list."""
