"""Choose among tools that are declared as equals, by how they did in past runs."""
