"""Results of two studies compared."""

import csv


def without_times(folder):
    """Every table of a study's results, but for the columns that say how long something took."""
    tables = {}
    for path in sorted(folder.glob("*.csv")):
        with open(path, newline="") as file:
            tables[path.name] = [
                [value for key, value in row.items() if not key.endswith("_seconds")]
                for row in csv.DictReader(file)
            ]
    return tables
