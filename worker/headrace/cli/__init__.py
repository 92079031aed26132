"""The command line: ``headrace NOUN VERB``. Data goes to stdout, errors and logs to stderr."""
