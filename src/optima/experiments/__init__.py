"""The paper's experiments, each a module that trains with the public API and writes its numbers as JSON. `optima reproduce NAME` runs them."""
