"""Access to the server: signing in, the cookie of the page, slowing down guesses, and the record of it in the audit log."""
