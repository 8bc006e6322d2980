"""What a cluster needs to run Penstock: one list of objects, from which manifests and a Helm chart are written."""
