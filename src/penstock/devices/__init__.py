"""What accelerators a machine has: one module a vendor, each a `ports.DeviceProvider`; `installed` joins them."""
