"""Correspondence for any triangulation of a human body: `bodies-any`."""
