"""The views: a module for each subject. A function of a row is given a visit, and gives what is shown."""
