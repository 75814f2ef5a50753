"""The paper's experiments: each trains with the public API and writes its numbers as JSON."""
