"""The decision as three pure steps: plan a batch, step its states, settle what it means.

No input or output and no clock: sync and async limiters, all stores and the replay walk this way.
"""
