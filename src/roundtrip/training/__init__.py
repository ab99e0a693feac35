"""Room 9: training. The only room with a loop over training steps."""
