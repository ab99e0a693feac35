"""Room 6: data. Many images: manifests, splits, prepared caches, and the pairs that are made of them."""
