"""Measurements against other libraries and of what learning costs. They report; they assert nothing about speed."""
