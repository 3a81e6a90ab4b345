"""The verbs: a public function for each, whose signature is also its command line."""
