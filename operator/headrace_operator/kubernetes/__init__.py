"""The API server: how it is called and how often, what is watched and known of it, what is told to it as Events."""
