"""Memory and a real server under the same random commands and one clock, compared whole after each of them."""
