"""The command line. A file per group of commands; each is imported only when it runs."""
