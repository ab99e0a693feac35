"""Room 12: the command line. Parses, calls, prints."""
