"""The pure core: every decision of Penstock, as functions of values.

No clock, no I/O, no randomness but a seeded generator passed in, no logging, no environment. The live server, the
fault simulator and every later driver call the same functions.
"""
