"""One self-contained HTML page; only `charts` and what imports it need matplotlib."""
