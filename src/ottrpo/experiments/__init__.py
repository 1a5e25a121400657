"""Runs: what they are (spec), who does them (registry), how (run), where they are kept (store)."""
