"""What AMD's tools say of its GPUs: `amd-smi`, `rocm-smi` and the kernel's topology in sysfs, as `Reading`s.

Each module reads one family of outputs by pure functions that never raise. A provider prefers the JSON of amd-smi,
then that of rocm-smi, then sysfs. Nothing here starts a tool or reads a file.
"""
