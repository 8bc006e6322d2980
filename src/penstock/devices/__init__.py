"""Accelerators of a machine: one module a vendor, each a `provider.DeviceProvider`; `installed` joins them."""
