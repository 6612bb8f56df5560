"""How a device does a step."""
