"""The systems that Headrace is compared with: real installs, pinned, each behind one small adapter."""
