"""SplineCNN itself: graphs, networks and the bundles they are served from; runs without HTTP."""
