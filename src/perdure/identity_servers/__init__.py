"""Servers elsewhere that prove who somebody is: of the AT Protocol, and OpenID providers. They give nobody a right."""
