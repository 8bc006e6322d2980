"""Devices by claims (DRA): which there are, who has them, and which a gang gets.

`pools`, `requests`, `constraints` and `allocator` are pure; `claimed` follows the cluster, `planned` says what the core
is to know, `writing` writes claims, and `kind` is what the engine sees of it all.
"""
