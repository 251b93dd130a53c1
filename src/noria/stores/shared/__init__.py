"""The shared store: one LMDB file for every process of a machine.

`store` decides, `quick` does so for the commonest call. `record` and `pages` say how states are
kept, `records` reads and writes them in a transaction, `sweeper` finds room. `file` opens the file
for this process and keeps it open over forks and damage; `datafile`, `directory` and `clock` deal
with what is on the disk.
"""

from noria.stores.shared.store import SharedStore

__all__ = ["SharedStore"]
