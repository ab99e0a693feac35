"""Room 8: pairwise. One pair of images, and no training: registered, or registered better."""
