"""The memory store: one process, bounded. `store` decides, `tables` keep and find room."""

from noria.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
