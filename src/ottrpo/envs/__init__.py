"""Environments: which ones the paper used, what they are called today, and their step caps."""
