"""The limiters: plan a batch, let the store apply it, settle what it means."""

from noria.limiter.aio import AsyncLimiter
from noria.limiter.sync import Limiter

__all__ = ["AsyncLimiter", "Limiter"]
