"""What people typed, judged by reading: which sentences of it are worth keeping. Labels only, never the texts."""
