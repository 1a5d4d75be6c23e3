"""The test rig: real clients, a scripted model server, a remote home, a resident process, worlds of users."""
