"""What every verb is made with: its declaration, its arguments, the options that verbs share, and the result."""
