"""The shared store: one LMDB file for every process of a machine.

`store` decides, `record` and `pages` say how states are kept, `file` opens the file for this process
and keeps it open over forks and damage, `datafile` and `directory` deal with what is on the disk.
"""

from noria.stores.shared.store import SharedStore

__all__ = ["SharedStore"]
