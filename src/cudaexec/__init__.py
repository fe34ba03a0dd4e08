"""Runs PyTorch models without PyTorch."""

from cudaexec._core import __version__

__all__ = ["__version__"]
