"""Room 7: evaluation. Numbers about results."""
