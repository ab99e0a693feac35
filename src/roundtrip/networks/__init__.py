"""Room 3: networks. Modules from two images to a tensor; they do not know what a map is."""
