"""The performance gate: a scripted server, a hand-written loop to compare with, counts and times. Run `benchmarks/gate.py`."""
