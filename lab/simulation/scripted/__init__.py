"""The real engine without a model, and workloads for it: what KV memory is worth, on any machine alike.

`turnout.lab.simulation` serves what a server would, by a cost model, and every request is as long as was
asked. Here requests have choices and beams, and end before what their clients allowed.
"""
