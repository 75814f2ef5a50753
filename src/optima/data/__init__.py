"""Data that comes with the library."""

from optima.data.digits import LabelledImages, digits

__all__ = ["LabelledImages", "digits"]
