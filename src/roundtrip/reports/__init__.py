"""Room 10: reports. Numbers become pictures and pages."""
