"""The routes: each reads, asks the engine or the repository, and answers."""
