"""Authority: credentials of machines, and grants of one owner to another. Both are events of the journal."""
