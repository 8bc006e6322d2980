"""Expressions of CEL, as selectors of devices are written in: parsed once, and evaluated in a bounded number of steps.

It is a part of the language of its own, not a library: an expression is somebody else's text, and each evaluation must
end within its steps; an unknown domain of a device is an empty map, an unknown field an error.
Sources: the CEL specification (github.com/google/cel-spec); the Kubernetes CEL libraries (lists, strings, quantity,
semver), https://kubernetes.io/docs/reference/using-api/cel/.
"""
