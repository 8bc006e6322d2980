"""The fault simulator of the Kubernetes engine: a whole cluster in one thread and in virtual time, chosen by a seed."""
