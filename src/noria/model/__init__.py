"""The values that travel between the floors: limits, batches, evidence, decisions, errors.

They are frozen and slotted and know no input or output. A module here imports only from
`noria.algorithms` and its neighbours.
"""
