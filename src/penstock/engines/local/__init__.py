"""The embedded engine: one agent (`engines.agent`) for each (virtual) node of this machine."""
