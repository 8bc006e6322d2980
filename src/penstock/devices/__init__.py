"""Accelerators of a machine: one module a vendor, each a `ports.DeviceProvider`; `installed` joins them."""
