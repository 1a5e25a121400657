"""What is kept of runs and studies: where it lies, who writes it, who reads it.

`layout` knows the names, `run_directory` a single run, `study_folder` the folded tables of many
with their checksums, `collecting` folds the ones into the others, and `reading` hands the tables to
whoever reports. Nothing here needs JAX, torch or an environment.
"""
