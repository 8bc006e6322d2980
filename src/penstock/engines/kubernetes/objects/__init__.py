"""Objects of the Kubernetes API as far as Penstock reads them; all other fields are skipped while decoding.

Names and meanings are those of the API types (https://github.com/kubernetes/api), in snake case. Amounts stay text
until `amounts.py` reads them exactly.
"""
