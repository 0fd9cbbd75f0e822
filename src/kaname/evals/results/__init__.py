"""What came of an evaluation: reports, statistics, comparisons, and their formats."""
