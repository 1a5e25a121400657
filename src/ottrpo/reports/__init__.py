"""Pictures and tables: pure functions of what runs have written."""
