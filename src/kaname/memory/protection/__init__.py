"""Protect what is stored: encrypt all files of a project, and export or erase what belongs to a user."""
